//! Functions that this library does not implement. They exist for the linker, and fail when called.
//!
//! Their arguments are ignored, so they are not declared. The reasons:
//!
//! - `mx_iput`, `mx_iget`: they name memory of the peer by an address, and no function of MX registers such memory or
//!   tells its address. Without registration, any peer could write all memory of the process. Open-MX and Xen2MX abort
//!   the program here.
//! - `mx_register_unexp_callback`: MX replaced it by `mx_register_unexp_handler`, and no header declares it.
//! - `mx_raw_*`: for programs that discover the routes of a Myrinet, which do not exist here.

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
