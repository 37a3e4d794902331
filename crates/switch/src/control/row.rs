//! Encodes counters for the control socket as a row of numbers without names. With names, encoding them took
//! most of the time of a report.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Counters, Drops};
use crate::histogram::{Bursts, Delays};

type Row = (
    [u64; Counters::TOTALS],
    Bursts,
    Delays,
    [u64; Drops::REASONS],
);

pub(super) fn serialize<S: Serializer>(
    counters: &Counters,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let row: Row = (
        counters.row(),
        counters.bursts,
        counters.latency,
        counters.drops.row(),
    );
    row.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Counters, D::Error> {
    let (totals, bursts, latency, drops) = Row::deserialize(deserializer)?;
    Ok(Counters {
        bursts,
        latency,
        drops: Drops::of_row(drops),
        ..Counters::of_row(totals)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{
        DropReason, DuplicateMac, Event, MAX_DATAGRAM, MAX_REPORTS, Peer, PortReport,
    };
    use crate::limits::{MAX_DUPLICATES, MAX_PEERS};
    use crate::mac::Mac;

    #[test]
    fn counters_are_the_same_after_encoding_and_decoding() {
        let mut counters = Counters {
            tx_frames: 1,
            tx_bytes: 2,
            rx_frames: 3,
            rx_bytes: 4,
            kicks: 5,
            calls: 6,
            backpressured: 7,
            limited: 8,
            multicast_without_members: 9,
            segmented: 10,
            checksummed: u64::MAX,
            ..Counters::default()
        };
        counters.bursts.note(64);
        counters.latency.note(1000);
        counters.drops.count(DropReason::Uplink);
        let report = PortReport {
            counters,
            ..PortReport::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<PortReport>(&text).unwrap(), report);
        assert!(!text.contains("tx_frames"), "{text}");
    }

    #[test]
    fn reports_with_the_greatest_numbers_fit_into_a_message() {
        let most = u64::MAX;
        let bursts = Bursts {
            counts: [most; 8],
            sum: most,
        };
        let latency = Delays {
            counts: [most; 21],
            sum: most,
        };
        let row: Row = (
            [most; Counters::TOTALS],
            bursts,
            latency,
            [most; Drops::REASONS],
        );
        let row = serde_json::to_value(row).unwrap();
        let counters = deserialize(&row).unwrap();
        let duplicate = DuplicateMac {
            mac: Mac::BROADCAST,
            vlan: u16::MAX,
            port: u16::MAX,
            moves: most,
        };
        let peer = Peer {
            port: u16::MAX,
            frames: most,
            bytes: most,
        };
        let plain = PortReport {
            port: u16::MAX,
            features: most,
            mtu: u16::MAX,
            fdb_entries: u32::MAX,
            stuck_ms: most,
            counters,
            ..PortReport::default()
        };
        let full = PortReport {
            duplicates: vec![duplicate; MAX_DUPLICATES],
            peers: vec![peer; MAX_PEERS],
            ..plain.clone()
        };
        assert!(full.most_bytes() <= MAX_REPORTS);
        for report in [plain, full] {
            let count = MAX_REPORTS / report.most_bytes();
            let event = Event::Report(vec![report; count]);
            assert!(serde_json::to_vec(&event).unwrap().len() <= MAX_DATAGRAM);
        }
    }
}
