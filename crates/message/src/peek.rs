//! Inspection without progress: for programs that decide themselves when progress is made, and for
//! [`until`](Endpoint::until).

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::ids::Request;
use crate::matching::Pattern;
use crate::status::{Completion, Status};

impl Endpoint {
    /// Returns whether a request has ended.
    ///
    /// # Errors
    /// There is no such request.
    pub fn is_ended(&mut self, request: Request) -> Result<bool, Error> {
        self.engine.requests.ended(request)
    }

    /// Returns the result of a request that has ended. The request is gone afterwards.
    pub fn take(&mut self, request: Request) -> Option<Completion> {
        self.engine.requests.take(request)
    }

    /// Returns the request that ended first among those with a matching value. Its result stays.
    #[must_use]
    pub fn oldest(&self, pattern: &Pattern) -> Option<Request> {
        self.engine.requests.oldest(pattern)
    }

    /// Returns the first unexpected message that matches. It stays queued.
    #[must_use]
    pub fn arrived(&self, pattern: &Pattern) -> Option<Status> {
        self.probed(pattern)
    }
}
