//! A port's state and rates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use switch::histogram::Histogram;

use crate::status::{Duplicate, Kind, PortStatus, State};

/// A port. Rates are per second of the interval; they are 0 in the first interval, and where a counter started again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LivePort {
    /// The network.
    pub(crate) network: String,
    /// The VM; the tap of an uplink.
    pub(crate) vm: String,
    /// What the port leads to.
    pub(crate) kind: Kind,
    /// What it is doing.
    pub(crate) state: State,
    /// Why it is not served.
    pub(crate) reason: Option<String>,
    /// The pinned address.
    pub(crate) mac: Option<String>,
    /// MTU that the front-end announced, 0 for none.
    pub(crate) mtu: u16,
    /// FDB entries that lead to the port.
    pub(crate) fdb_entries: u32,
    /// Milliseconds for which the guest has posted no buffer for a frame that waits for it.
    pub(crate) stuck_ms: u64,
    /// Addresses that another port uses, too.
    pub(crate) duplicates: Vec<Duplicate>,
    /// Rates.
    pub(crate) rates: PortRates,
    /// Dropped frames since the daemon started, by reason, where there are any.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Latencies of the interval: the greatest nanoseconds of each bucket, and its values. The last bucket has no bound.
    pub(crate) latency: Vec<(Option<u64>, u64)>,
    /// Frames of each burst in the interval, likewise.
    pub(crate) bursts: Vec<(Option<u64>, u64)>,
}

/// What a port did in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PortRates {
    /// Frames that the guest sent.
    pub(crate) tx_frames: f64,
    /// Their bytes.
    pub(crate) tx_bytes: f64,
    /// Frames that the guest received.
    pub(crate) rx_frames: f64,
    /// Their bytes.
    pub(crate) rx_bytes: f64,
    /// Notifications from the guest.
    pub(crate) kicks: f64,
    /// Notifications to the guest.
    pub(crate) calls: f64,
    /// Frames that waited because a receiver had no room.
    pub(crate) backpressured: f64,
    /// Dropped frames.
    pub(crate) drops: f64,
}

impl LivePort {
    /// Returns a port, given its state `seconds` earlier, if it was there.
    pub(super) fn new(now: &PortStatus, earlier: Option<&PortStatus>, seconds: f64) -> Self {
        let counters = &now.counters;
        let earlier = earlier.map(|earlier| &earlier.counters);
        let rate = |of: fn(&switch::control::Counters) -> u64| {
            let growth = earlier.and_then(|earlier| of(counters).checked_sub(of(earlier)));
            per_second(growth.unwrap_or(0), seconds)
        };
        let drops = counters.drops.each().into_iter();
        let drops = drops.filter(|(_, count)| *count > 0);
        Self {
            network: now.network.clone(),
            vm: now.vm.clone(),
            kind: now.kind,
            state: now.state,
            reason: now.reason.clone(),
            mac: now.mac.map(|mac| mac.to_string()),
            mtu: now.mtu,
            fdb_entries: now.residents,
            stuck_ms: now.stuck_ms,
            duplicates: now.duplicates.clone(),
            rates: PortRates {
                tx_frames: rate(|of| of.tx_frames),
                tx_bytes: rate(|of| of.tx_bytes),
                rx_frames: rate(|of| of.rx_frames),
                rx_bytes: rate(|of| of.rx_bytes),
                kicks: rate(|of| of.kicks),
                calls: rate(|of| of.calls),
                backpressured: rate(|of| of.backpressured),
                drops: rate(|of| of.drops.total()),
            },
            drops: drops
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
            latency: buckets(&counters.latency, earlier.map(|earlier| &earlier.latency)),
            bursts: buckets(&counters.bursts, earlier.map(|earlier| &earlier.bursts)),
        }
    }
}

/// Returns a growth per second; 0 for an interval of no length.
#[allow(clippy::cast_precision_loss, reason = "rates are for people")]
pub(super) fn per_second(growth: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        growth as f64 / seconds
    } else {
        0.0
    }
}

/// Returns the buckets with values of the interval: bound and values.
fn buckets<const FIRST: u32, const N: usize>(
    now: &Histogram<FIRST, N>,
    earlier: Option<&Histogram<FIRST, N>>,
) -> Vec<(Option<u64>, u64)> {
    let bounds = now.cumulative().map(|(bound, _)| Some(bound));
    let bounds = bounds.chain(std::iter::repeat(None));
    let before = earlier.map_or([0; N], |earlier| earlier.counts);
    let values = now.counts.iter().zip(before);
    let growths = values.map(|(now, before)| now.saturating_sub(before));
    bounds
        .zip(growths)
        .filter(|(_, growth)| *growth > 0)
        .collect()
}
