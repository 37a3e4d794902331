//! Peers that no memfd and no socket leads to: in VMs of this host.
//!
//! # Theory of operation
//!
//! A *member* is a VM, or the host's own processes together; each has a name, a board, and so a
//! NIC id ([`Board::nic_of`](crate::Board::nic_of)). On each member's board a [`Gateway`] runs.
//! It is the way out for endpoints that connect to another NIC, and to the endpoints of its board
//! it speaks for those that connect from there. On the host the [`Switchboard`] joins the gateways:
//! with each it shares a region (`window::region`), and in it a *trunk*: a window that carries
//! [`note`](control_message::ControlMessage)s. Messages never go through trunks. For each pair of endpoints the
//! switchboard picks a link, a window of a region:
//!
//! - *direct*: both members are of one trust group and share a region. Both endpoints have the same
//!   window, and nobody is between them.
//! - *mediated*: each member has a region of its own. Each endpoint has a window with the host, and
//!   the switchboard copies from one to the other ([`relay`]).
//!
//! What trunks and links leave of a group's region is *heaps*, one for each member ([`window::region::Heap`]). Programs
//! borrow stretches of their member's; its kernel keeps who has which, so neither the gateway nor the host does. The
//! host tells both ends of a direct link where the other sits, and an endpoint copies from that heap and no other.
//!
//! An endpoint that sleeps is woken by its socket, by its gateway. Gateways on the host are woken
//! by theirs. A gateway in a VM is woken by an interrupt, if a driver is there that takes it
//! ([`window::pci`]); otherwise it looks at its trunk, less and less often, so that looking takes
//! less than a hundredth of a processor.
//!
//! What a switchboard needs of the system ([`Resources`]) can outlive its process. The next one does not
//! know the links, so all gateways have to join anew. Windows that were in use may still be written
//! by endpoints that have not noticed: they rest until no VM of their region runs.
//!
//! Who owns what: the switchboard alone decides which link is whose, and what a link's source
//! address is. What may fail: a member, in every way. It is believed nothing; a note that makes no
//! sense ends its trunk, and with it all of its links, and nobody else's. The end of a VM is the
//! end of the socket that QEMU got the region by; the end of a gateway shows in its beat.

mod control_message;
pub(crate) mod directory;
mod gateway;
mod layout;
mod limits;
mod link;
mod link_pool;
mod links;
mod local;
mod local_endpoints;
mod membership;
mod names;
mod poll_backoff;
mod relay;
mod report;
mod resources;
mod seat;
mod switchboard;
mod transport;
mod trunk;
pub mod uplink;

pub use gateway::Gateway;
pub use report::{Counters, MemberReport};
pub use resources::{Guest, Member, Place, Resources};
pub use switchboard::Switchboard;
pub use transport::Transport;
