//! When to ask again: soon where answers come soon, and less and less often where none comes.
//!
//! The dialect's times ([`RESEND`](crate::limits::RESEND), [`PULL`](crate::limits::PULL)) are
//! thousands of times what an answer takes on an Ethernet, so a frame that is lost would cost as much
//! as some hundred megabytes. Whoever is asked twice answers twice, and the second answer is dropped.

use std::time::Duration;

/// How long answers of a partner take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retransmit {
    usual: Option<Duration>,
}

/// Longer than so many usual answers, one is lost.
const LATE: u32 = 4;

/// How much one answer says of the usual one: an eighth.
const PARTS: u32 = 8;

impl Retransmit {
    /// An answer took so long since it was asked for first.
    pub(crate) fn answered(&mut self, time: Duration) {
        self.usual = Some(match self.usual {
            None => time,
            Some(usual) => (usual * (PARTS - 1) + time) / PARTS,
        });
    }

    /// How long to wait for an answer when it was asked again so many times already: `most` as long
    /// as nothing is known.
    pub(crate) fn wait(self, tries: u32, (least, most): (Duration, Duration)) -> Duration {
        let Some(usual) = self.usual else {
            return most;
        };
        let first = usual.saturating_mul(LATE).max(least);
        first.saturating_mul(1 << tries.min(16)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_soon_is_asked_soon_and_who_does_not_more_and_more_seldom() {
        let ms = Duration::from_millis;
        let bounds = (ms(20), ms(1000));
        let mut pace = Retransmit::default();
        assert_eq!(pace.wait(0, bounds), ms(1000), "nothing is known");
        pace.answered(ms(1));
        let waits = [0, 1, 2, 5, 6, 99].map(|tries| pace.wait(tries, bounds));
        assert_eq!(waits, [20, 40, 80, 640, 1000, 1000].map(ms));
        for _ in 0..100 {
            pace.answered(ms(10));
        }
        let wait = pace.wait(0, bounds);
        assert!(wait > ms(39) && wait <= ms(40), "{wait:?}");
    }
}
