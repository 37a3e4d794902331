//! Functions that this library does not implement. They exist for the linker, and fail when called.
//!
//! Their arguments are ignored, so they are not declared. `mx_raw_*` is for programs that discover
//! the routes of a Myrinet, which do not exist here.

use super::process_call;
use crate::codes::Return;

macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Return {
                process_call(|| Err(Return::FAILURE))
            }
        )*
    };
}

unsupported! {
    mx_iput
    mx_iget
    mx_buffered
    mx_register_unexp_callback
    mx_raw_open_endpoint
    mx_raw_close_endpoint
    mx_raw_handle
    mx_raw_send
    mx_raw_next_event
    mx_raw_set_route_begin
    mx_raw_set_route_end
    mx_raw_set_route
    mx_raw_set_route_mag
    mx_raw_clear_routes
    mx_raw_remove_peer
    mx_raw_set_map_version
    mx_raw_num_ports
    mx_raw_line_speed
    mx_raw_set_hostname
    mx_raw_set_peer_name
    mx_raw_set_nic_reply_info
}
