//! Copies a port's frames to its captures and mirrors.

use std::time::SystemTime;

use crate::capture::{Capture, Direction};
use crate::context::WorkerContext;
use crate::frame::{Head, Rest};
use crate::guard::{Checked, Outgoing, Way, passage};
use crate::limits::MAX_CAPTURES;
use crate::switch::Switch;

impl Switch {
    /// Show frames of a port, whether it is there or comes later; false when too many do.
    pub(crate) fn capture(&mut self, number: u16, capture: Capture) -> bool {
        let captures = self.captures.entry(number).or_default();
        let room = captures.len() < MAX_CAPTURES;
        if room {
            captures.push(capture);
        }
        self.note_watched(number);
        room
    }

    /// Show them no more.
    pub(crate) fn end_capture(&mut self, number: u16, capture: u32) {
        if let Some(captures) = self.captures.get_mut(&number) {
            captures.retain(|one| one.number != capture);
            if captures.is_empty() {
                self.captures.remove(&number);
            }
        }
        self.note_watched(number);
    }

    /// Whether somebody is to see a port's frames.
    pub(crate) fn is_watched(&self, number: u16) -> bool {
        self.captures.contains_key(&number) || self.mirrors.contains_key(&number)
    }

    pub(crate) fn note_watched(&mut self, number: u16) {
        let watched = self.is_watched(number);
        if let Some(port) = self.port_mut(number) {
            port.watched = watched;
        }
    }

    /// Show frames, which a sender's pair brought, to those who capture or mirror a port. The
    /// caller has no receive ring in hand.
    #[cold]
    #[inline(never)]
    pub(crate) fn show<'f, 'm>(
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
        if mirrors.is_none() && !context.capture_budget.is_left() {
            return self.miss(number, frames.count());
        }
        let time = now();
        for (head, rest, checked) in frames {
            // A frame that the port may not have has no tag of its.
            let way = passage(port.guard.as_deref(), checked).unwrap_or(Way::Untagged);
            let Some(out) = Outgoing::new(way, checked, head, &rest) else {
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

    /// Note a frame for those who capture a port.
    fn note(
        &self,
        context: &mut WorkerContext,
        number: u16,
        (time, direction): (u64, Direction),
        out: &Outgoing<'_, '_>,
    ) {
        for capture in self.captures.get(&number).into_iter().flatten() {
            if context.capture_budget.is_left() {
                let bytes = capture.note(time, direction, &out.head, out.rest());
                context.capture_budget.spend(bytes);
            } else {
                capture.batch().missed += 1;
            }
        }
    }

    /// Frames that a worker has no time to show.
    fn miss(&self, number: u16, frames: usize) {
        for capture in self.captures.get(&number).into_iter().flatten() {
            capture.batch().missed += frames as u64;
        }
    }

    /// Send what was shown.
    #[cold]
    pub(crate) fn flush_captures(&self) {
        self.captures.values().flatten().for_each(Capture::flush);
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // Until the year 2554.
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
