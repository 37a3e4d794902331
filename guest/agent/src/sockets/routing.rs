//! Leads the packets of servers back to the agent's connections, which come from addresses of other VMs.
//!
//! A connection of the agent has a mark. `net.ipv4.tcp_fwmark_accept` gives the mark to the connection that the server
//! accepts, and a rule leads packets with the mark to this VM itself.

use std::fs;

use crate::error::{AgentError, io};
use crate::netlink::Netlink;

/// The mark: guest/sockets/layout.h.
pub(super) const MARK: u32 = 0x7669_6373;

/// Number of the table of routes, and priority of the rule.
const TABLE: u32 = 7669;

const ACCEPT_MARKS: &str = "/proc/sys/net/ipv4/tcp_fwmark_accept";

/// Begins, also after an agent that was killed.
pub(super) fn steer() -> Result<(), AgentError> {
    io(fs::write(ACCEPT_MARKS, "1"), || {
        format!("write {ACCEPT_MARKS}")
    })?;
    Netlink::open()?.lead_to_itself(MARK, TABLE)
}

/// Removes the rule and the route. The setting stays: other programs may need it by now.
pub(super) fn stop_steering() -> Result<(), AgentError> {
    Netlink::open()?.do_not_lead(MARK, TABLE)
}
