//! Copies a port's frames to its captures and mirrors.

use crate::capture::{Capture, Direction};
use crate::context::WorkerContext;
use crate::frame::{Head, Rest};
use crate::guard::{Checked, Outgoing, Tagging, egress_tagging};
use crate::limits::MAX_CAPTURES;
use crate::switch::Switch;
use std::time::SystemTime;

impl Switch {
    /// Adds a capture to a port, attached or not; returns false when the port has too many.
    pub(crate) fn capture(&mut self, number: u16, capture: Capture) -> bool {
        let captures = self.captures.entry(number).or_default();
        let room = captures.len() < MAX_CAPTURES;
        if room {
            captures.push(capture);
        }
        self.update_observed(number);
        room
    }

    /// Removes a capture.
    pub(crate) fn end_capture(&mut self, number: u16, capture: u32) {
        if let Some(captures) = self.captures.get_mut(&number) {
            captures.retain(|one| one.number != capture);
            if captures.is_empty() {
                self.captures.remove(&number);
            }
        }
        self.update_observed(number);
    }

    /// Returns whether a port is captured or mirrored.
    pub(crate) fn is_observed(&self, number: u16) -> bool {
        self.captures.contains_key(&number) || self.mirrors.contains_key(&number)
    }

    pub(crate) fn update_observed(&mut self, number: u16) {
        let observed = self.is_observed(number);
        if let Some(port) = self.port_mut(number) {
            port.observed = observed;
        }
    }

    /// Copies frames of a sender's pair to the captures and mirror ports of a port. The caller must not
    /// have a receive ring locked.
    #[cold]
    #[inline(never)]
    pub(crate) fn observe<'f, 'm>(
        &self,
        context: &mut WorkerContext,
        (number, pair): (u16, usize),
        direction: Direction,
        frames: impl Iterator<Item = (&'f Head, Rest<'f, 'm>, Checked)>,
    ) where
        'm: 'f,
    {
        let Some(port) = self.port(number) else {
            return;
        };
        let mirrors = self.mirrors.get(&number);
        if mirrors.is_none() && !context.capture_budget.is_available() {
            return self.count_missed(number, frames.count());
        }
        let time = now();
        for (head, rest, checked) in frames {
            // A frame that the rules do not let this port have is copied without a tag.
            let tagging =
                egress_tagging(port.guard.as_deref(), checked).unwrap_or(Tagging::Untagged);
            let Some(out) = Outgoing::new(tagging, checked, head, &rest) else {
                continue;
            };
            self.note(context, number, (time, direction), &out);
            for to in mirrors.into_iter().flatten() {
                if self.mirror(context, (*to, pair), &out) {
                    self.note(context, *to, (time, Direction::Received), &out);
                }
            }
        }
    }

    /// Adds a frame to the captures of a port.
    fn note(
        &self,
        context: &mut WorkerContext,
        number: u16,
        (time, direction): (u64, Direction),
        out: &Outgoing<'_, '_>,
    ) {
        for capture in self.captures.get(&number).into_iter().flatten() {
            if context.capture_budget.is_available() {
                let bytes = capture.note(time, direction, &out.head, out.rest());
                context.capture_budget.charge(bytes);
            } else {
                capture.batch().missed += 1;
            }
        }
    }

    /// Counts frames that exceed the worker's capture budget as missed.
    fn count_missed(&self, number: u16, frames: usize) {
        for capture in self.captures.get(&number).into_iter().flatten() {
            capture.batch().missed += frames as u64;
        }
    }

    /// Sends the datagrams of all captures.
    #[cold]
    pub(crate) fn flush_captures(&self) {
        self.captures.values().flatten().for_each(Capture::flush);
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // Overflows in the year 2554.
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
