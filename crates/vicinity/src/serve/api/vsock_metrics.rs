//! The socket devices in Prometheus' text format.

use observe::prometheus::{Labels, Text};

use crate::status::VsockStatus;

/// Name, kind, help text, and the function that reads the value.
type Series = (
    &'static str,
    &'static str,
    &'static str,
    fn(&VsockStatus) -> u64,
);

const SERIES: [Series; 9] = [
    (
        "vicinity_vsock_up",
        "gauge",
        "1 while the process of the VM's socket device runs",
        |vsock| u64::from(vsock.up),
    ),
    (
        "vicinity_vsock_restarts_total",
        "counter",
        "Times the supervisor restarted the process of the VM's socket device",
        |vsock| vsock.restarts,
    ),
    (
        "vicinity_vsock_attached",
        "gauge",
        "1 while the VM's QEMU is connected",
        |vsock| u64::from(vsock.figures.attached),
    ),
    (
        "vicinity_vsock_connections",
        "gauge",
        "Connections of the VM's sockets",
        |vsock| vsock.figures.connections,
    ),
    (
        "vicinity_vsock_connections_total",
        "counter",
        "Connections of the VM's sockets that began, in either direction",
        |vsock| vsock.figures.begun,
    ),
    (
        "vicinity_vsock_sent_packets_total",
        "counter",
        "Packets that the VM sent",
        |vsock| vsock.figures.sent_packets,
    ),
    (
        "vicinity_vsock_sent_bytes_total",
        "counter",
        "Payload bytes that the VM sent",
        |vsock| vsock.figures.sent_bytes,
    ),
    (
        "vicinity_vsock_received_bytes_total",
        "counter",
        "Payload bytes that the VM received",
        |vsock| vsock.figures.received_bytes,
    ),
    (
        "vicinity_vsock_deferred_packets_total",
        "counter",
        "Packets of the VM that were copied out of its ring, because their receiver had no buffers",
        |vsock| vsock.figures.deferred,
    ),
];

/// Returns the text.
#[allow(clippy::cast_precision_loss, reason = "Prometheus' values are floats")]
pub(super) fn text(vsocks: &[VsockStatus]) -> String {
    let mut text = Text::default();
    let labels = |vsock: &VsockStatus| Labels::new(&[("vm", &vsock.vm)]);
    for (name, kind, help, figure) in SERIES {
        text.head(name, kind, help);
        for vsock in vsocks {
            text.line(name, &labels(vsock), figure(vsock) as f64);
        }
    }
    let name = "vicinity_vsock_refused_total";
    let help = "Packets of the VM that were refused, and connections that were reset, by reason";
    text.head(name, "counter", help);
    for vsock in vsocks {
        let figures = &vsock.figures;
        for (reason, count) in [
            ("invalid", figures.invalid),
            ("not-allowed", figures.not_allowed),
            ("too-many", figures.too_many),
            ("no-connection", figures.no_connection),
            ("stuck-receiver", figures.stuck),
        ] {
            text.line_with(name, &labels(vsock), ("reason", reason), count as f64);
        }
    }
    text.finish()
}
