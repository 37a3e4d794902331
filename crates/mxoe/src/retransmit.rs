//! Retransmission timeouts: a multiple of the measured response time, doubled with each retry.
//!
//! The dialect's timeouts ([`RESEND_TIMEOUT`](crate::limits::RESEND_TIMEOUT),
//! [`PULL_TIMEOUT`](crate::limits::PULL_TIMEOUT)) are thousands of times the response time of an
//! Ethernet. With them, one lost frame would cost as much time as a transfer of some hundred
//! megabytes. A retransmission that was not needed does no harm: the partner answers twice, and the
//! node drops the second answer.

use std::time::Duration;

/// Smoothed response time of a partner (compare SRTT in RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseTime {
    smoothed: Option<Duration>,
}

/// The timeout in multiples of the smoothed response time.
const TIMEOUT_FACTOR: u32 = 4;

/// Weight of the old average. A new sample counts one eighth.
const SMOOTHING: u32 = 8;

impl ResponseTime {
    /// Adds a sample: the time between the first transmission and the answer.
    pub(crate) fn add_sample(&mut self, time: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => time,
            Some(smoothed) => (smoothed * (SMOOTHING - 1) + time) / SMOOTHING,
        });
    }

    /// Returns the timeout after `tries` retries, which is `most` as long as there is no sample.
    pub(crate) fn timeout(self, tries: u32, (least, most): (Duration, Duration)) -> Duration {
        let Some(smoothed) = self.smoothed else {
            return most;
        };
        let first = smoothed.saturating_mul(TIMEOUT_FACTOR).max(least);
        first.saturating_mul(1 << tries.min(16)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_follow_response_times_and_double_with_each_retry() {
        let ms = Duration::from_millis;
        let bounds = (ms(20), ms(1000));
        let mut time = ResponseTime::default();
        assert_eq!(time.timeout(0, bounds), ms(1000), "nothing is known");
        time.add_sample(ms(1));
        let waits = [0, 1, 2, 5, 6, 99].map(|tries| time.timeout(tries, bounds));
        assert_eq!(waits, [20, 40, 80, 640, 1000, 1000].map(ms));
        for _ in 0..100 {
            time.add_sample(ms(10));
        }
        let wait = time.timeout(0, bounds);
        assert!(wait > ms(39) && wait <= ms(40), "{wait:?}");
    }
}
