//! The same traffic between the same two VMs over the switch, and over taps and a bridge.

use report::stats::{median, paired_ratio};
use vm_harness::channel;
use vm_harness::error::Result;
use vm_harness::workload;

use crate::guest::{Guest, ping, serve};
use crate::outcome::Outcome;
use crate::testbed::{BRIDGE, SWITCH, Testbed};

/// Rounds; each measures both channels, one right after the other.
const ROUNDS: u32 = 2;

/// Seconds of a TCP stream, and of round trips.
const STREAM: u32 = 2;
const TRIPS: u32 = 1;

/// Bytes in a request and in its response.
const MESSAGE: u32 = 64;

pub(super) fn compare(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One, Guest::Two])?;
    let (one, two) = (bed.vm(Guest::One)?, bed.vm(Guest::Two)?);
    serve(two)?;
    let target = |network| channel::address(network, Guest::Two.number());
    for network in [BRIDGE, SWITCH] {
        ping(one, &target(network))?;
    }
    // Values of the bridge and of the switch, in the order of the rounds.
    let (mut streams, mut trips) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..ROUNDS {
        let mut order = [BRIDGE, SWITCH];
        if round % 2 == 1 {
            order.reverse();
        }
        for network in order {
            let stream = workload::tcp(one, &target(network), STREAM)?;
            let trip = workload::ping_pong(one, &target(network), TRIPS, MESSAGE)?;
            let place = usize::from(network == SWITCH);
            if let (Some(streams), Some(trips)) = (streams.get_mut(place), trips.get_mut(place)) {
                streams.push(stream.mbit_s);
                trips.push(trip.p50_us);
            }
        }
    }
    let [bridge, switch] = &streams;
    let [bridge_trips, switch_trips] = &trips;
    Ok(Outcome::pass()
        .figure("TCP, switch", median(switch), "Mbit/s")
        .figure("TCP, bridge", median(bridge), "Mbit/s")
        .figure("TCP, switch / bridge", paired_ratio(bridge, switch), "")
        .figure("64 B round trip, switch", median(switch_trips), "µs")
        .figure("64 B round trip, bridge", median(bridge_trips), "µs")
        .figure(
            "round trip, switch / bridge",
            paired_ratio(bridge_trips, switch_trips),
            "",
        )
        .note(bed.bridge_carrier())
        .note(format!(
            "medians of {ROUNDS} short rounds; `vicinity demo` measures longer"
        )))
}
