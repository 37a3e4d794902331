//! The limits of a group.

/// Members of a group.
pub const MEMBERS: u32 = 16;
