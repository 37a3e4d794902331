//! What the switchboard can tell of its members.

/// A member: what it is doing, and what it has done since the switchboard was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its trust group.
    pub group: Option<String>,
    /// The NIC id of its board.
    pub nic: u64,
    /// Its VM runs; of the host, its gateway does.
    pub connected: bool,
    /// Its gateway has joined.
    pub joined: bool,
    /// Links that it has now.
    pub links: u32,
    /// Its doings.
    pub counters: Counters,
}

/// What a member has done. Of what goes directly from one member to another the host sees nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that its gateway joined.
    pub joins: u64,
    /// Links that it had or has.
    pub links: u64,
    /// Messages that were taken from it and passed on.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Times that it was cut off, or one of its links was, because it made no sense.
    pub faults: u64,
}
