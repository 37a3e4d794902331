//! Credits: messages above [`MEDIUM`](crate::limits::MEDIUM) that are sent without an offer.
//!
//! An offered message waits for the receiver's *pull*, and its sender for the next poll after that. Where the receiver has measured that streams are
//! faster than copies by the kernel ([`crate::copy_choice`]), its pull grants credits: the sender sends as many messages of up to
//! [`MEDIUM_WITH_CREDIT`](crate::limits::MEDIUM_WITH_CREDIT) bytes as medium ones. The receiver measures on by the messages that are offered in between, which report how many bytes
//! were sent with credits.
//!
//! The sender knows how its messages follow each other, so an offer tells the receiver the [`Flow`], and the credits of a pull are for messages of that flow.

use crate::copy_choice::Flow;
use crate::ids::Request;
use crate::request::{Requests, State};

/// The credits of a flow.
#[derive(Debug, Default)]
struct Account {
    left: u32,
    /// Bytes sent with credits since the last offer.
    used: u64,
}

/// The credits of a link, and what the flow of its next message depends on.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    single: Account,
    several: Account,
    /// The last message that was offered.
    offered: Option<Request>,
    /// The position of the peer's lane when the last long message was sent.
    seen: u32,
}

impl Credits {
    fn of(&mut self, flow: Flow) -> &mut Account {
        match flow {
            Flow::Single => &mut self.single,
            Flow::Several => &mut self.several,
        }
    }

    /// The peer grants this many from now on.
    pub(crate) fn grant(&mut self, flow: Flow, count: u32) {
        self.of(flow).left = count;
    }

    /// Returns the bytes that an offer of this flow reports.
    pub(crate) fn take_used(&mut self, flow: Flow) -> u64 {
        std::mem::take(&mut self.of(flow).used)
    }

    /// Returns the flow of a message that is sent now. `position` is that of the peer's lane.
    pub(crate) fn flow(&self, requests: &Requests, position: u32) -> Flow {
        let last = self.offered.and_then(|last| requests.peek(last));
        let is_pending = last.is_some_and(|entry| entry.state != State::Ended);
        match is_pending || position == self.seen {
            true => Flow::Several,
            false => Flow::Single,
        }
    }

    /// Returns whether there is a credit for a message of this flow.
    pub(crate) fn has(&mut self, flow: Flow) -> bool {
        self.of(flow).left > 0
    }

    /// Uses a credit for a message of this length.
    pub(crate) fn take(&mut self, flow: Flow, length: u64, position: u32) {
        let account = self.of(flow);
        account.left = account.left.saturating_sub(1);
        account.used = account.used.saturating_add(length);
        self.seen = position;
    }

    /// A message has been offered.
    pub(crate) fn offered(&mut self, request: Request, position: u32) {
        self.offered = Some(request);
        self.seen = position;
    }
}
