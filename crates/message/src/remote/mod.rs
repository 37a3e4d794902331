//! Peers that no memfd and no socket leads to: in VMs of this host.
//!
//! # Theory of operation
//!
//! A *member* is a VM, or the host's own processes together; each has a name, a board, and so a
//! NIC id ([`Board::nic_of`](crate::Board::nic_of)). On each member's board a [`Gateway`] runs.
//! It is the way out for endpoints that connect to another NIC, and to the endpoints of its board
//! it speaks for those that connect from there. On the host the [`Switchboard`] joins the gateways:
//! with each it shares a region (`window::region`), and in it a *trunk*: a window that carries
//! [`note`](control_message::ControlMessage)s. Messages never go through channels. For each pair of endpoints the
//! switchboard picks a link, a window of a region:
//!
//! - *direct*: both members are of one trust group and share a region. Both endpoints have the same
//!   window, and nobody is between them.
//! - *mediated*: each member has a region of its own. Each endpoint has a window with the host, and
//!   the switchboard copies from one to the other ([`relay`]).
//!
//! What channels and links leave of a group's region is *heaps*, one for each member ([`window::region::Heap`]). Programs
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

mod control_channel;
mod control_message;
pub(crate) mod directory;
mod gateway;
mod link_pool;
mod links;
mod local_endpoints;
mod member;
mod membership;
mod names;
mod poll_backoff;
mod relay;
mod report;
mod resources;
mod switchboard;
mod transport;
pub mod uplink;

pub use gateway::Gateway;
pub use report::{Counters, MemberReport};
pub use resources::{Guest, Place, Resources};
pub use switchboard::{Member, Switchboard};
pub use transport::Transport;

use std::time::Duration;

use window::WindowError;
use window::layout::{LaneSize, Layout};
use window::region::RegionLayout;

use crate::connect;

/// The trunk's lanes. Only the first is used.
const CONTROL_LANES: [LaneSize; 2] = [
    LaneSize {
        slots: 64,
        data: 4096,
    },
    LaneSize {
        slots: 8,
        data: 4096,
    },
];

/// Links of a region. It is 64 MiB long then, with up to 16 seats, where there are no heaps.
const LINKS: u32 = 48;

/// Bytes of a region that members share. What channels and links leave is for their heaps.
const SHARED: u64 = 128 << 20;

/// Links of one member at a time.
const LINKS_PER_MEMBER: usize = LINKS as usize;

/// Notes taken from one trunk before the next has its turn.
const BURST: usize = 64;

/// A gateway whose beat has not changed for so long is no more.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest pause of a gateway between two looks at its trunk.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The region of a member, or of a group of so many.
fn region_layout(members: u32) -> Result<RegionLayout, WindowError> {
    let layout = RegionLayout {
        members,
        links: LINKS,
        units: 0,
        control: Layout::new(CONTROL_LANES)?,
        link: connect::layout()?,
    };
    // Alone with the host, nobody would read it.
    Ok(match members {
        ..=1 => layout,
        _ => layout.filled(SHARED),
    })
}
