//! The broker's report of its members.

/// A member's state, and its counters since the broker was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its trust group.
    pub group: Option<String>,
    /// The NIC id of its board.
    pub nic: u64,
    /// Whether its VM runs; of the host, whether its gateway does.
    pub connected: bool,
    /// Whether its gateway has joined.
    pub joined: bool,
    /// Whether its gateway says that it polls: its VM gets no interrupts of the region.
    pub polling: bool,
    /// Whether its gateway has sent no heartbeat for 10 s, as when its VM is paused. Its links stay.
    pub silent: bool,
    /// Its links now.
    pub links: u32,
    /// Its counters.
    pub counters: Counters,
    /// What the switchboard took from it for each other member, for at most [`MAX_PEERS`] of them: those with the most
    /// bytes.
    pub sent_to: Vec<MessagesSent>,
}

/// The most members in [`MemberReport::sent_to`]: a report must fit into a message to the supervisor.
pub const MAX_PEERS: usize = 16;

/// What a member sent to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagesSent {
    /// The other member.
    pub name: String,
    /// Messages.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// The counters of a member. The host does not see direct links' messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that its gateway joined.
    pub joins: u64,
    /// Links in all.
    pub links: u64,
    /// Messages that the broker took from it and forwarded.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Times that it was disconnected, or one of its links was, because of a protocol violation.
    pub faults: u64,
}
