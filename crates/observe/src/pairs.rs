//! The traffic matrix: how much each port sent to each other port, as a list of the fields that are not
//! zero.

use std::collections::HashMap;
use std::time::Duration;

use crate::reading::{Reading, Sent};
use crate::report::Pair;

/// Returns what each port sent to each other port between two readings, the busiest pair first. Returns
/// an empty list if the readings are not from the same daemon.
pub(crate) fn rates(earlier: &Reading, later: &Reading, interval: Duration) -> Vec<Pair> {
    let seconds = interval.as_secs_f64();
    if seconds <= 0.0 || earlier.daemon != later.daemon {
        return Vec::new();
    }
    let key = |sent: &Sent| {
        let names = (sent.network.clone(), sent.from.clone(), sent.to.clone());
        (sent.channel, names)
    };
    let before: HashMap<_, _> = earlier.sent.iter().map(|sent| (key(sent), sent)).collect();
    let rate = |now: &Sent| {
        let (frames, bytes) = grown(before.get(&key(now)).copied(), now);
        (frames > 0).then(|| Pair {
            channel: now.channel,
            network: now.network.clone(),
            from: now.from.clone(),
            to: now.to.clone(),
            frames: frames as f64 / seconds,
            bytes: bytes as f64 / seconds,
        })
    };
    let mut pairs: Vec<Pair> = later.sent.iter().filter_map(rate).collect();
    pairs.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    pairs
}

/// Returns the increase of a pair's frames and bytes. A VM's counters restart at zero when its NIC
/// connects again: then their new values are the increase.
fn grown(then: Option<&Sent>, now: &Sent) -> (u64, u64) {
    let difference = then.and_then(|then| {
        Some((
            now.frames.checked_sub(then.frames)?,
            now.bytes.checked_sub(then.bytes)?,
        ))
    });
    difference.unwrap_or((now.frames, now.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::reading;

    /// Returns a reading of a daemon. Each element of `all` is a pair of ports, with the frames and
    /// bytes that the first has sent to the second.
    fn sent(daemon: Option<u32>, all: &[(&str, &str, u64, u64)]) -> Reading {
        let sent = all.iter().map(|(from, to, frames, bytes)| Sent {
            channel: crate::reading::Channel::Switch,
            network: "lan".into(),
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            frames: *frames,
            bytes: *bytes,
        });
        Reading {
            daemon,
            sent: sent.collect(),
            ..reading(0)
        }
    }

    #[test]
    fn what_a_port_sent_to_each_other_is_a_rate() {
        let before = sent(Some(1), &[("a", "b", 10, 1000), ("a", "c", 5, 500)]);
        let all = [
            ("a", "b", 30, 3000),
            ("a", "c", 5, 500),
            ("b", "a", 4, 8000),
        ];
        let after = sent(Some(1), &all);
        let pairs = rates(&before, &after, Duration::from_secs(2));
        let short: Vec<_> = pairs
            .iter()
            .map(|pair| {
                (
                    pair.from.as_str(),
                    pair.to.as_str(),
                    pair.frames,
                    pair.bytes,
                )
            })
            .collect();
        assert_eq!(short, [("b", "a", 2.0, 4000.0), ("a", "b", 10.0, 1000.0)]);
        assert!(rates(&before, &after, Duration::ZERO).is_empty());
    }

    #[test]
    fn another_daemons_counters_are_no_rate() {
        let now = sent(Some(2), &[("a", "b", 1000, 100_000)]);
        for before in [sent(None, &[]), sent(Some(1), &[("a", "b", 10, 1000)])] {
            assert!(rates(&before, &now, Duration::from_secs(1)).is_empty());
        }
    }

    #[test]
    fn counters_that_began_anew_give_no_negative_rate() {
        let before = sent(Some(1), &[("a", "b", 10, 1000)]);
        let after = sent(Some(1), &[("a", "b", 3, 300)]);
        let pairs = rates(&before, &after, Duration::from_secs(1));
        let pair = pairs.first().unwrap();
        assert_eq!((pair.frames, pair.bytes), (3.0, 300.0));
    }
}
