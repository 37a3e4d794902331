//! Counters on the control socket: as a row of numbers without their names. Whoever looks at figures
//! asks for one report a port, and most of the time that took went into names.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Counters, Drops};
use crate::histogram::{Bursts, Delays};

type Row = ([u64; 11], Bursts, Delays, [u64; Drops::REASONS]);

pub(super) fn serialize<S: Serializer>(
    counters: &Counters,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // Every field is named, so that a new counter cannot be forgotten here.
    let Counters {
        tx_frames,
        tx_bytes,
        rx_frames,
        rx_bytes,
        kicks,
        calls,
        held,
        limited,
        unheard,
        segmented,
        checksummed,
        bursts,
        latency,
        drops,
    } = *counters;
    let numbers = [
        tx_frames,
        tx_bytes,
        rx_frames,
        rx_bytes,
        kicks,
        calls,
        held,
        limited,
        unheard,
        segmented,
        checksummed,
    ];
    let row: Row = (numbers, bursts, latency, drops.row());
    row.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Counters, D::Error> {
    let (numbers, bursts, latency, drops) = Row::deserialize(deserializer)?;
    let [
        tx_frames,
        tx_bytes,
        rx_frames,
        rx_bytes,
        kicks,
        calls,
        held,
        limited,
        unheard,
        segmented,
        checksummed,
    ] = numbers;
    Ok(Counters {
        tx_frames,
        tx_bytes,
        rx_frames,
        rx_bytes,
        kicks,
        calls,
        held,
        limited,
        unheard,
        segmented,
        checksummed,
        bursts,
        latency,
        drops: Drops::of_row(drops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Loss, PortReport};

    #[test]
    fn counters_are_the_same_after_their_way() {
        let mut counters = Counters {
            tx_frames: 1,
            tx_bytes: 2,
            rx_frames: 3,
            rx_bytes: 4,
            kicks: 5,
            calls: 6,
            held: 7,
            limited: 8,
            unheard: 9,
            segmented: 10,
            checksummed: u64::MAX,
            ..Counters::default()
        };
        counters.bursts.note(64);
        counters.latency.note(1000);
        counters.drops.count(Loss::Uplink);
        let report = PortReport {
            counters,
            ..PortReport::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<PortReport>(&text).unwrap(), report);
        assert!(!text.contains("tx_frames"), "{text}");
    }
}
