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
use crate::limits::OFFER_AFTER;
use crate::request::{Requests, State};

/// The credits of a flow.
#[derive(Debug, Default)]
struct Account {
    left: u32,
    /// Bytes sent with credits since the last offer.
    used: u64,
    /// Messages sent with credits since the last one that was to be offered instead.
    messages: u32,
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
    /// That message was sent after the end of the one before, and after a message of the peer.
    was_alone: bool,
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

    /// Returns the flow of a message that is sent now. `position` is that of the peer's lane. The first of several messages after the peer's
    /// answer to those before is not single: only one in a row of messages that are alone is.
    pub(crate) fn flow(&self, requests: &Requests, position: u32) -> Flow {
        match self.was_alone && self.is_alone(requests, position) {
            true => Flow::Single,
            false => Flow::Several,
        }
    }

    fn is_alone(&self, requests: &Requests, position: u32) -> bool {
        let last = self.offered.and_then(|last| requests.peek(last));
        let is_pending = last.is_some_and(|entry| entry.state != State::Ended);
        !is_pending && position != self.seen
    }

    /// Decides whether a message of this flow is sent with a credit. If not, it is to be offered. A program that matches messages itself offers the data
    /// later; until then the next messages have credits.
    pub(crate) fn decide(&mut self, flow: Flow) -> bool {
        let account = self.of(flow);
        if account.messages >= OFFER_AFTER {
            account.messages = 0;
            return false;
        }
        account.left > 0
    }

    /// Uses a credit for a message of this flow and length.
    pub(crate) fn take(&mut self, requests: &Requests, flow: Flow, length: u64, position: u32) {
        let account = self.of(flow);
        account.left = account.left.saturating_sub(1);
        account.used = account.used.saturating_add(length);
        account.messages = account.messages.saturating_add(1);
        self.sent(requests, position);
    }

    /// A message is offered.
    pub(crate) fn offer(&mut self, requests: &Requests, request: Request, position: u32) {
        self.sent(requests, position);
        self.offered = Some(request);
    }

    /// Records what the flow of the next message depends on.
    fn sent(&mut self, requests: &Requests, position: u32) {
        self.was_alone = self.is_alone(requests, position);
        self.seen = position;
    }
}
