//! The conditions that a thread can wait for.

use message::{Endpoint, Pattern, Request};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// A request has completed.
    Completed(Request),
    /// Some request with a matching value has completed.
    AnyCompleted(Pattern),
    /// An unexpected message has arrived.
    Unexpected(Pattern),
    /// Never holds: the thread sleeps until another thread makes a call.
    Never,
}

impl Condition {
    pub(crate) fn holds(&self, endpoint: &mut Endpoint) -> bool {
        match self {
            // A request that does not exist counts as completed.
            Self::Completed(request) => endpoint.is_ended(*request).unwrap_or(true),
            Self::AnyCompleted(pattern) => endpoint.oldest(pattern).is_some(),
            Self::Unexpected(pattern) => endpoint.arrived(pattern).is_some(),
            Self::Never => false,
        }
    }
}
