//! The conditions that a thread can wait for.

use message::{Endpoint, Pattern, Request};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// The end of a request.
    End(Request),
    /// The end of any request of a fitting match value.
    AnyEnd(Pattern),
    /// A message that no receive waits for.
    Arrival(Pattern),
    /// Nothing: until somebody else calls.
    Call,
}

impl Condition {
    pub(crate) fn holds(&self, endpoint: &mut Endpoint) -> bool {
        match self {
            // That of no request is over, too.
            Self::End(request) => endpoint.is_ended(*request).unwrap_or(true),
            Self::AnyEnd(pattern) => endpoint.oldest(pattern).is_some(),
            Self::Arrival(pattern) => endpoint.arrived(pattern).is_some(),
            Self::Call => false,
        }
    }
}
