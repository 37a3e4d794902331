//! The state of all networks and spaces in Prometheus' text format: `GET /metrics`.

mod series;

use observe::prometheus::{self, Labels, Text};
use switch::histogram::Histogram;

use crate::serve::network::message::Answer;
use crate::status::{ControlStatus, PortStatus, SpaceStatus};
use series::{NETWORKS, PORTS, SPACES, Series};

/// The content type of the text.
pub(in crate::serve) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Bytes of text reserved for each port, and for the text that belongs to no port.
const PORT_CAPACITY: usize = 6 << 10;

/// Returns the text with all series.
pub(in crate::serve) fn text(
    answers: &[Answer],
    spaces: &[SpaceStatus],
    control: &[ControlStatus],
) -> String {
    let ports: usize = answers.iter().map(|answer| answer.ports.len()).sum();
    let mut text = Text::with_room((1 + ports) * PORT_CAPACITY);
    let spaces: Vec<_> = spaces
        .iter()
        .map(|space| (Labels::new(&[("vm", &space.vm)]), space))
        .collect();
    series(&mut text, &SPACES, &spaces);
    lost_clients(&mut text, &spaces);
    sizing(&mut text, control);
    let networks = answers.iter().map(|answer| &answer.network);
    let networks = networks.map(|network| (Labels::new(&[("network", &network.name)]), network));
    series(&mut text, &NETWORKS, &networks.collect::<Vec<_>>());
    let ports = answers.iter().flat_map(|answer| &answer.ports);
    let ports: Vec<_> = ports
        .map(|port| (Labels::port(&port.network, &port.vm), port))
        .collect();
    series(&mut text, &PORTS, &ports);
    stuck(&mut text, &ports);
    let traffic = ports
        .iter()
        .map(|(labels, port)| (labels.clone(), port.traffic()));
    prometheus::ports(&mut text, &traffic.collect::<Vec<_>>());
    let sent: Vec<_> = ports.iter().flat_map(|(_, port)| sent(port)).collect();
    prometheus::pairs(&mut text, &sent);
    drops(&mut text, &ports);
    histograms(
        &mut text,
        (
            "vicinity_port_burst_frames",
            "Frames in each burst that a worker took from a port",
        ),
        &ports,
        (|port| &port.counters.bursts, 1.0),
    );
    histograms(
        &mut text,
        (
            "vicinity_port_latency_seconds",
            "Time from the beginning of a port's burst to the delivery of its frames, of one burst in 8",
        ),
        &ports,
        (|port| &port.counters.latency, 1e-9),
    );
    text.finish()
}

fn series<T>(text: &mut Text, all: &[Series<T>], items: &[(Labels, &T)]) {
    for (name, kind, help, figure) in all {
        text.head(name, kind, help);
        for (labels, item) in items {
            text.line(name, labels, figure(item) as f64);
        }
    }
}

/// Adds the counters of clients that a space disconnected or refused.
fn lost_clients(text: &mut Text, spaces: &[(Labels, &SpaceStatus)]) {
    let name = "vicinity_space_lost_clients_total";
    text.head(
        name,
        "counter",
        "Clients that the space disconnected or refused, by reason",
    );
    for (labels, space) in spaces {
        let figures = &space.figures;
        for (reason, count) in [
            ("stalled", figures.stalled),
            ("too-many", figures.refused_clients),
        ] {
            text.line_with(name, labels, ("reason", reason), count as f64);
        }
    }
}

/// Name, help text, and the function that reads the value.
type Gauge = (&'static str, &'static str, fn(&ControlStatus) -> f64);

/// Adds how the budget of slots is divided, if there is a budget.
fn sizing(text: &mut Text, control: &[ControlStatus]) {
    let all: [Gauge; 4] = [
        (
            "vicinity_space_budget_slots",
            "Slots that the controller distributes",
            |control| f64::from(control.budget),
        ),
        (
            "vicinity_space_free_slots",
            "Slots of the budget that no space has",
            |control| f64::from(control.free),
        ),
        (
            "vicinity_space_stretch_ratio",
            "Factor by which the budget lengthens the times of the objectives",
            |control| control.stretch,
        ),
        (
            "vicinity_space_slot_price",
            "Shadow price of a slot: weighted slots a second for which no job would wait if the budget had one slot more",
            |control| control.price,
        ),
    ];
    for (name, help, figure) in all {
        text.head(name, "gauge", help);
        for control in control {
            text.line(name, &Labels::default(), figure(control));
        }
    }
    let name = "vicinity_space_blocked_ratio";
    text.head(
        name,
        "gauge",
        "Part of the last second in which writes waited for slots",
    );
    for space in control.iter().flat_map(|control| &control.spaces) {
        let window = &space.window;
        if window.seconds > 0.0 {
            let labels = Labels::new(&[("vm", &space.vm)]);
            text.line(name, &labels, window.blocked / window.seconds);
        }
    }
}

/// Returns the frames and bytes that a port sent to each other port.
fn sent(port: &PortStatus) -> impl Iterator<Item = (Labels, [u64; 2])> + '_ {
    port.sent_to.iter().map(|to| {
        let labels = Labels::pair(&port.network, &port.vm, &to.vm);
        (labels, [to.frames, to.bytes])
    })
}

/// Adds the histograms of those ports that have values. Omits empty ones, because a histogram has
/// many lines.
fn histograms<const FIRST: u32, const N: usize>(
    text: &mut Text,
    (name, help): (&str, &str),
    ports: &[(Labels, &PortStatus)],
    (of, unit): (fn(&PortStatus) -> &Histogram<FIRST, N>, f64),
) {
    text.head(name, "histogram", help);
    let empty = Histogram::<FIRST, N>::default();
    let bounds = empty.cumulative().map(|(bound, _)| bound as f64 * unit);
    let bounds: Vec<String> = bounds.map(|bound| bound.to_string()).collect();
    for (labels, port) in ports {
        let histogram = of(port);
        let count = histogram.count();
        if count > 0 {
            let below = histogram.cumulative().map(|(_, below)| below);
            let below = bounds.iter().map(String::as_str).zip(below);
            let sum = histogram.sum as f64 * unit;
            text.histogram(name, labels, below, (count, sum));
        }
    }
}

/// Adds for how long ports have taken no frame, in seconds.
fn stuck(text: &mut Text, ports: &[(Labels, &PortStatus)]) {
    let name = "vicinity_port_stuck_seconds";
    let help = "Time for which the guest has posted no buffer for a frame that waits for it, or 0";
    text.head(name, "gauge", help);
    for (labels, port) in ports {
        text.line(name, labels, port.stuck_ms as f64 / 1e3);
    }
}

/// Adds the drop counters. Omits reasons that never occurred, because there are many reasons.
fn drops(text: &mut Text, ports: &[(Labels, &PortStatus)]) {
    let name = "vicinity_port_drops_total";
    text.head(name, "counter", "Dropped frames, by reason");
    for (labels, port) in ports {
        for (reason, count) in port.counters.drops.each() {
            if count > 0 {
                text.line_with(name, labels, ("reason", reason), count as f64);
            }
        }
    }
}
