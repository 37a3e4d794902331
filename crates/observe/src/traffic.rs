//! Frames and bytes of a VM's NICs.

use serde::Serialize;

/// Totals of one or several NICs, from the guest's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Frames that the guest sent. Each is one descriptor chain.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the guest received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

impl Traffic {
    /// Returns the number of frames in both directions.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.tx_frames.saturating_add(self.rx_frames)
    }

    /// Returns the number of bytes in both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tx_bytes.saturating_add(self.rx_bytes)
    }

    /// Returns the sum of two totals.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            tx_frames: self.tx_frames.saturating_add(other.tx_frames),
            tx_bytes: self.tx_bytes.saturating_add(other.tx_bytes),
            rx_frames: self.rx_frames.saturating_add(other.rx_frames),
            rx_bytes: self.rx_bytes.saturating_add(other.rx_bytes),
        }
    }

    /// Returns the difference to an earlier reading. If a counter decreased, it restarted (another
    /// daemon, or another tap with the same name). Then the traffic before the restart is unknown, and
    /// the function returns zeros.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = || {
            Some(Self {
                tx_frames: self.tx_frames.checked_sub(earlier.tx_frames)?,
                tx_bytes: self.tx_bytes.checked_sub(earlier.tx_bytes)?,
                rx_frames: self.rx_frames.checked_sub(earlier.rx_frames)?,
                rx_bytes: self.rx_bytes.checked_sub(earlier.rx_bytes)?,
            })
        };
        difference().unwrap_or_default()
    }
}

/// Returns the totals of a tap from `/proc/PID/net/dev`, which shows the network namespace of that
/// process. The frames that the tap receives are those that the guest sent.
#[must_use]
pub fn of_tap(net_dev: &str, tap: &str) -> Option<Traffic> {
    let line = net_dev.lines().find_map(|line| {
        let (name, figures) = line.split_once(':')?;
        (name.trim() == tap).then_some(figures)
    })?;
    let figures: Vec<u64> = line
        .split_whitespace()
        .map_while(|figure| figure.parse().ok())
        .collect();
    let figure = |index: usize| figures.get(index).copied();
    // The receive columns are: bytes packets errs drop fifo frame compressed multicast. The eight
    // transmit columns follow, and begin with bytes and packets, too.
    Some(Traffic {
        tx_bytes: figure(0)?,
        tx_frames: figure(1)?,
        rx_bytes: figure(8)?,
        rx_frames: figure(9)?,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::text::changed;

    const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
 vnet3: 9876543    1234    0    5    0     0          0         0 12345678    4321    0    0    0     0       0          0
";

    #[test]
    fn what_a_tap_receives_its_guest_sent() {
        let traffic = Traffic {
            tx_frames: 1234,
            tx_bytes: 9_876_543,
            rx_frames: 4321,
            rx_bytes: 12_345_678,
        };
        assert_eq!(of_tap(NET_DEV, "vnet3"), Some(traffic));
        assert_eq!(of_tap(NET_DEV, "vnet"), None);
        assert_eq!(of_tap("vnet3: 1 2 3\n", "vnet3"), None);
    }

    #[test]
    fn a_counter_that_started_anew_gives_no_rate() {
        let old = of_tap(NET_DEV, "vnet3").unwrap();
        let new = Traffic {
            tx_frames: 3,
            ..old
        };
        assert_eq!(new.since(&old), Traffic::default());
        assert_eq!(old.since(&Traffic::default()), old);
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let reached = Cell::new(0);
        proptest!(|(text in changed(NET_DEV))| {
            if let Some(traffic) = of_tap(&text, "vnet3") {
                reached.set(reached.get() + 1);
                prop_assert!(text.contains("vnet3"));
                prop_assert!(text.contains(&traffic.tx_bytes.to_string()));
            }
        });
        assert!(reached.get() > 100, "{} texts were read", reached.get());
    }
}
