//! The state of all networks and spaces in Prometheus' text format: `GET /metrics`.

use observe::prometheus::{self, Labels, Text};
use switch::histogram::Histogram;

use crate::serve::network::message::Answer;
use crate::status::{ControlStatus, NetworkStatus, PortStatus, SpaceStatus, State};

/// The content type of the text.
pub(in crate::serve) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Bytes of text reserved for each port, and for the text that belongs to no port.
const ROOM: usize = 6 << 10;

/// Name, kind, help text, and the function that reads the value.
type Series<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

const NETWORKS: [Series<NetworkStatus>; 7] = [
    (
        "vicinity_network_up",
        "gauge",
        "1 while the network's data plane runs",
        |network| u64::from(network.up),
    ),
    (
        "vicinity_network_restarts_total",
        "counter",
        "Times the supervisor restarted the network's data plane",
        |network| network.restarts,
    ),
    (
        "vicinity_network_fdb_entries",
        "gauge",
        "Entries of the network's FDB",
        |network| u64::from(network.worker.residents),
    ),
    (
        "vicinity_network_residents",
        "gauge",
        "Deprecated, use vicinity_network_fdb_entries",
        |network| u64::from(network.worker.residents),
    ),
    (
        "vicinity_network_wakeups_total",
        "counter",
        "Times a worker woke up from sleep",
        |network| network.worker.wakeups,
    ),
    (
        "vicinity_network_frames_total",
        "counter",
        "Frames that the workers forwarded, counted once at their sender",
        |network| network.worker.busy_frames,
    ),
    (
        "vicinity_network_busy_ticks_total",
        "counter",
        "Time-stamp counter ticks that the workers spent on forwarding",
        |network| network.worker.busy_ticks,
    ),
];

const PORTS: [Series<PortStatus>; 14] = [
    (
        "vicinity_port_running",
        "gauge",
        "1 while the port forwards frames",
        |port| u64::from(matches!(port.state, State::Running | State::Migrating)),
    ),
    (
        "vicinity_port_quarantined",
        "gauge",
        "1 while the port is in quarantine",
        |port| u64::from(port.state == State::Quarantined),
    ),
    (
        "vicinity_port_quarantines_total",
        "counter",
        "Times the supervisor put the port into quarantine",
        |port| port.quarantines,
    ),
    (
        "vicinity_port_connections_total",
        "counter",
        "Connections of front-ends, the present one included",
        |port| port.connections,
    ),
    (
        "vicinity_port_fdb_entries",
        "gauge",
        "FDB entries that lead to the port",
        |port| u64::from(port.residents),
    ),
    (
        "vicinity_port_residents",
        "gauge",
        "Deprecated, use vicinity_port_fdb_entries",
        |port| u64::from(port.residents),
    ),
    (
        "vicinity_port_duplicate_addresses",
        "gauge",
        "MAC addresses that both this port and another one use",
        |port| port.duplicates.len() as u64,
    ),
    (
        "vicinity_port_kicks_total",
        "counter",
        "Notifications from the guest (kicks)",
        |port| port.counters.kicks,
    ),
    (
        "vicinity_port_calls_total",
        "counter",
        "Notifications to the guest (calls)",
        |port| port.counters.calls,
    ),
    (
        "vicinity_port_backpressured_total",
        "counter",
        "Frames that waited because a receiver had no room",
        |port| port.counters.held,
    ),
    (
        "vicinity_port_held_total",
        "counter",
        "Deprecated, use vicinity_port_backpressured_total",
        |port| port.counters.held,
    ),
    (
        "vicinity_port_limited_total",
        "counter",
        "Times frames stayed in the port's rings because the port had reached its send rate",
        |port| port.counters.limited,
    ),
    (
        "vicinity_port_segmented_total",
        "counter",
        "Frames segmented because a receiver had not negotiated their kind of GSO",
        |port| port.counters.segmented,
    ),
    (
        "vicinity_port_checksummed_total",
        "counter",
        "Frames whose checksum was filled in because a receiver had not negotiated checksum offload",
        |port| port.counters.checksummed,
    ),
];

const SPACES: [Series<SpaceStatus>; 16] = [
    (
        "vicinity_space_up",
        "gauge",
        "1 while the space's process runs",
        |space| u64::from(space.up),
    ),
    (
        "vicinity_space_restarts_total",
        "counter",
        "Times the supervisor restarted the space's process",
        |space| space.restarts,
    ),
    (
        "vicinity_space_slots",
        "gauge",
        "Slots that may be in use",
        |space| u64::from(space.figures.slots),
    ),
    (
        "vicinity_space_used_slots",
        "gauge",
        "Slots in use",
        |space| u64::from(space.figures.used),
    ),
    (
        "vicinity_space_memory_bytes",
        "gauge",
        "Bytes of host memory that the slots occupy",
        |space| space.figures.memory,
    ),
    (
        "vicinity_space_published_files",
        "gauge",
        "Published files, which clients can fetch",
        |space| space.figures.published as u64,
    ),
    (
        "vicinity_space_waiting_writes",
        "gauge",
        "Writes of the VM that wait for slots now",
        |space| space.figures.waiting,
    ),
    (
        "vicinity_space_waited_writes_total",
        "counter",
        "Writes of the VM that had to wait for slots",
        |space| space.figures.waited,
    ),
    (
        "vicinity_space_invalid_requests_total",
        "counter",
        "Malformed requests of the VM",
        |space| space.figures.nonsense,
    ),
    (
        "vicinity_space_nonsense_requests_total",
        "counter",
        "Deprecated, use vicinity_space_invalid_requests_total",
        |space| space.figures.nonsense,
    ),
    (
        "vicinity_space_clients",
        "gauge",
        "Clients connected",
        |space| space.figures.clients,
    ),
    (
        "vicinity_space_requests_total",
        "counter",
        "Requests of clients",
        |space| space.figures.requests,
    ),
    (
        "vicinity_space_refused_requests_total",
        "counter",
        "Requests refused because the client is not allowed to fetch",
        |space| space.figures.refused,
    ),
    (
        "vicinity_space_sent_bytes_total",
        "counter",
        "Bytes of files sent to clients or to the store",
        |space| space.figures.sent,
    ),
    (
        "vicinity_space_pushed_files_total",
        "counter",
        "Files that the store has acknowledged",
        |space| space.figures.pushed,
    ),
    (
        "vicinity_space_failed_pushes_total",
        "counter",
        "Failed attempts to push a file",
        |space| space.figures.push_failures,
    ),
];

/// Returns the text with all series.
pub(in crate::serve) fn text(
    answers: &[Answer],
    spaces: &[SpaceStatus],
    control: &[ControlStatus],
) -> String {
    let ports: usize = answers.iter().map(|answer| answer.ports.len()).sum();
    let mut text = Text::with_room((1 + ports) * ROOM);
    let spaces: Vec<_> = spaces
        .iter()
        .map(|space| (Labels::new(&[("vm", &space.vm)]), space))
        .collect();
    series(&mut text, &SPACES, &spaces);
    cut_off(&mut text, &spaces);
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

/// Adds the counters of clients that spaces did not serve to the end.
fn cut_off(text: &mut Text, spaces: &[(Labels, &SpaceStatus)]) {
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
            ("too-many", figures.turned_away),
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
