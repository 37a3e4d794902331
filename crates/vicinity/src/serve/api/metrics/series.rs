//! The series of networks, ports and spaces that have one value each.

use crate::status::{NetworkStatus, PortStatus, SpaceStatus, State};

/// Name, kind, help text, and the function that reads the value.
pub(super) type Series<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

pub(super) const NETWORKS: [Series<NetworkStatus>; 7] = [
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
        |network| u64::from(network.worker.fdb_entries),
    ),
    (
        "vicinity_network_residents",
        "gauge",
        "Deprecated, use vicinity_network_fdb_entries",
        |network| u64::from(network.worker.fdb_entries),
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

pub(super) const PORTS: [Series<PortStatus>; 14] = [
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
        |port| u64::from(port.fdb_entries),
    ),
    (
        "vicinity_port_residents",
        "gauge",
        "Deprecated, use vicinity_port_fdb_entries",
        |port| u64::from(port.fdb_entries),
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
        |port| port.counters.backpressured,
    ),
    (
        "vicinity_port_held_total",
        "counter",
        "Deprecated, use vicinity_port_backpressured_total",
        |port| port.counters.backpressured,
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

pub(super) const SPACES: [Series<SpaceStatus>; 16] = [
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
        |space| space.figures.invalid_requests,
    ),
    (
        "vicinity_space_nonsense_requests_total",
        "counter",
        "Deprecated, use vicinity_space_invalid_requests_total",
        |space| space.figures.invalid_requests,
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
