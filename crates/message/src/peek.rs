//! Looking at what is there without making anything happen: for a program that decides itself when
//! progress is made, and for [`until`](Endpoint::until).

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::ids::Request;
use crate::matching::Pattern;
use crate::status::{Completion, Status};

impl Endpoint {
    /// Whether a request has ended.
    ///
    /// # Errors
    /// There is no such request.
    pub fn is_ended(&mut self, request: Request) -> Result<bool, Error> {
        self.engine.requests.ended(request)
    }

    /// The result of a request that has ended. The request is gone then.
    pub fn take(&mut self, request: Request) -> Option<Completion> {
        self.engine.requests.take(request)
    }

    /// The request that ended first of those with a fitting match value. Its result stays.
    #[must_use]
    pub fn oldest(&self, pattern: &Pattern) -> Option<Request> {
        self.engine.requests.oldest(pattern)
    }

    /// The first message that fits and that nobody waits for. It stays.
    #[must_use]
    pub fn arrived(&self, pattern: &Pattern) -> Option<Status> {
        self.probed(pattern)
    }
}
