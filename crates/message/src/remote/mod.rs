//! Remote peers: endpoints in other VMs of this host, and on other hosts.
//!
//! # Theory of operation
//!
//! A *member* is a VM, or the host's own processes together. Each member has a name, a board, and so
//! a NIC id ([`Board::nic_of`](crate::Board::nic_of)). On each member's board runs a [`Gateway`]. An
//! endpoint that connects to another NIC connects to its board's gateway, and the gateway connects to
//! the endpoints of its board on behalf of remote ones. On the host, the [`Broker`] joins the
//! gateways. With each gateway it shares a region (`window::region`), and in the region a *control
//! window* that carries [control messages](control_message::ControlMessage). Messages of endpoints
//! never go through control windows. For each pair of endpoints the broker picks a link, which
//! is a window of a region:
//!
//! - *direct*: both members are in one trust group and share a region. Both endpoints use the same
//!   window, and no process is between them.
//! - *mediated*: each member has a region of its own. Each endpoint has a window with the host, and
//!   the broker copies from one to the other ([`relay`]).
//!
//! ```text
//!   member a (VM)                host                 member b (VM)
//!  +-------------+      +---------------------+      +-------------+
//!  |  endpoint ==|======|====== Relay ========|======|== endpoint  |  mediated link
//!  |  endpoint ==|======|=====================|======|== endpoint  |  direct link
//!  |     |       |      |                     |      |      |      |
//!  |  Gateway ---|------|------ Broker -------|------|-- Gateway   |  control windows
//!  +-------------+      |          |          |      +-------------+
//!                       |       Uplink -------|----> other hosts
//!                       +---------------------+
//! ```
//!
//! The rest of a group's region is *heaps*, one for each member ([`window::region::Heap`]). Programs
//! allocate buffers on their member's heap; the member's kernel keeps the allocations, so neither
//! the gateway nor the host does. The host sends both ends of a direct link the number of the peer's
//! member, and an endpoint copies from that member's heap and no other.
//!
//! A sleeping endpoint is woken through its socket, by its gateway. The host wakes gateways on the
//! host through theirs. The host wakes a gateway in a VM by an interrupt, if the VM has the driver
//! for it ([`window::pci`]). Otherwise the gateway polls its control window with growing pauses, so
//! that polling takes less than 1 % of a processor.
//!
//! The system resources of a broker ([`Resources`]) can outlive its process. Its successor does
//! not know the links, so all gateways have to join again. Endpoints that have not noticed may still
//! write windows that were in use: these windows are not reused until no VM of their region runs.
//!
//! Only the broker decides which link belongs to which members, and what a link's source
//! address is. A member may fail in every way, and the broker trusts none of its values. A
//! malformed control message ends the membership of its gateway, and with it all of its links; other
//! members are unaffected. The host detects the end of a VM by the end of the socket that QEMU got
//! the region through. A gateway that ends says so, and one that joins again has ended before; one
//! whose [heartbeat] is missing keeps its links, because its VM may be paused.

mod adaptive_polling;
mod broker;
mod control_channel;
mod control_message;
mod datagram_plane;
pub(crate) mod directory;
mod gateway;
mod heartbeat;
mod in_process;
mod in_process_parts;
mod interface_folder;
mod interface_offer;
mod layout;
mod limits;
mod link;
mod link_pool;
mod link_setup;
mod link_teardown;
mod links;
mod local_endpoints;
mod local_link;
mod member;
mod membership;
mod names;
#[cfg(test)]
mod overcommit_model;
mod poll_backoff;
mod program_board;
mod program_folder;
mod relay;
mod report;
mod resources;
mod shared_interface;
mod transport;
pub mod uplink;

pub use broker::Broker;
pub use datagram_plane::DatagramPlane;
pub use gateway::Gateway;
pub use in_process::InProcess;
pub use interface_folder::DaemonInterface;
pub use interface_offer::{InterfaceOffer, OfferedSockets, SOCKET as INTERFACE_SOCKET};
pub use program_board::{
    BOARD, DATAGRAMS_VARIABLE, INTERFACE_VARIABLE, Way, interface_folder, name_interface,
    open_board,
};
pub use report::{Counters, MAX_PEERS, MemberReport, MessagesSent};
pub use resources::{Connection, Member, MemberResources, Resources};
pub use transport::Transport;
