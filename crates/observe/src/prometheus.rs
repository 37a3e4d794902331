//! Writes one reading in Prometheus' text format: counters since the start of each VM. Prometheus
//! computes the rates.
//!
//! When a thread ends, its counters disappear, so a VM's sum can decrease a little. Prometheus treats
//! the decrease as a counter reset, which is correct.

use std::fmt::Write;

use crate::counters::Totals;
use crate::reading::{Channel, Id, Reading, ThreadSet, Vm};
use crate::traffic::Traffic;

/// Returns the text. From `vicinity_worker_cpu_seconds_total` and `vicinity_port_frames_total` a query
/// can compute each VM's share of a worker's time, as `vicinity top` does.
#[must_use]
pub fn render(reading: &Reading) -> String {
    let mut text = vms(reading);
    let of_ports = reading.ports.iter();
    let of_ports = of_ports.map(|port| (Labels::port(&port.network, &port.vm), port.traffic));
    ports(&mut text, &of_ports.collect::<Vec<_>>());
    let sent = reading.sent.iter();
    let sent = sent
        .filter(|sent| sent.channel == Channel::Switch)
        .map(|sent| {
            let labels = Labels::pair(&sent.network, &sent.from, &sent.to);
            (labels, [sent.frames, sent.bytes])
        });
    pairs(&mut text, &sent.collect::<Vec<_>>());
    switches(&mut text, reading);
    text.0
}

/// Returns the text of the VMs and of Vicinity's workers alone, for a text that has the ports already.
#[must_use]
pub fn of_vms(reading: &Reading) -> String {
    vms(reading).0
}

fn vms(reading: &Reading) -> Text {
    let mut text = Text::default();
    for (name, help, figure) in THREADS {
        text.head(name, "counter", help);
        for vm in reading.vms.values() {
            for (set, guest) in [("guest", true), ("backend", false)] {
                let labels = Labels::new(&[("vm", &vm.name), ("set", set)]);
                text.line(name, &labels, sum(vm, guest, figure));
            }
        }
    }
    memory(&mut text, reading);
    workers(&mut text, reading);
    text
}

type Figure = fn(&Totals) -> f64;

const THREADS: [(&str, &str, Figure); 4] = [
    (
        "vicinity_vm_cpu_seconds_total",
        "Time on a CPU; QEMU's threads and vhost workers only in the backend",
        |totals| totals.run_ns as f64 / 1e9,
    ),
    (
        "vicinity_vm_wait_seconds_total",
        "Time runnable, but not running",
        |totals| totals.wait_ns as f64 / 1e9,
    ),
    (
        "vicinity_vm_executions_total",
        "Times put on a CPU",
        |totals| totals.executions as f64,
    ),
    (
        "vicinity_vm_switches_total",
        "Times taken off a CPU",
        |totals| totals.switches as f64,
    ),
];

fn sum(vm: &Vm, guest: bool, figure: Figure) -> f64 {
    let threads = vm.threads.values();
    let ours = threads.filter(|thread| thread.role.is_guest() == guest);
    ours.map(|thread| figure(&thread.totals)).sum()
}

fn memory(text: &mut Text, reading: &Reading) {
    let name = "vicinity_vm_memory_bytes";
    text.head(name, "gauge", "Host memory of the VM's process");
    for vm in reading.vms.values() {
        if let Some(memory) = vm.memory {
            text.line(name, &Labels::new(&[("vm", &vm.name)]), memory.bytes as f64);
        }
    }
}

fn workers(text: &mut Text, reading: &Reading) {
    let name = "vicinity_worker_cpu_seconds_total";
    text.head(
        name,
        "counter",
        "CPU time of the threads of Vicinity's daemon",
    );
    for (id, plane) in &reading.planes {
        for thread in plane.threads.values() {
            let (network, pid) = (plane.network.as_deref(), id.pid.to_string());
            let labels = Labels::new(&[
                ("network", network.unwrap_or_default()),
                ("thread", &thread.name),
                ("pid", &pid),
            ]);
            text.line(name, &labels, thread.totals.run_ns as f64 / 1e9);
        }
    }
}

/// Writes the frames and bytes that the ports' VMs sent and received. The series have the same names
/// whether the counters are from a reading or from the daemon.
pub fn ports(text: &mut Text, ports: &[(Labels, Traffic)]) {
    for (name, help, sent, received) in [
        (
            "vicinity_port_frames_total",
            "Frames of a VM's port",
            (|traffic| traffic.tx_frames) as fn(&Traffic) -> u64,
            (|traffic| traffic.rx_frames) as fn(&Traffic) -> u64,
        ),
        (
            "vicinity_port_bytes_total",
            "Bytes of a VM's port",
            |traffic| traffic.tx_bytes,
            |traffic| traffic.rx_bytes,
        ),
    ] {
        text.head(name, "counter", help);
        for (labels, traffic) in ports {
            for (direction, figure) in [("sent", sent), ("received", received)] {
                let value = figure(traffic) as f64;
                text.line_with(name, labels, ("direction", direction), value);
            }
        }
    }
}

/// Writes the frames and bytes that the ports' VMs sent to each other. The series have the same names
/// whether the counters are from a reading or from the daemon.
pub fn pairs(text: &mut Text, pairs: &[(Labels, [u64; 2])]) {
    let frames = (
        "vicinity_pair_frames_total",
        "Frames from one port of a network to another",
    );
    let bytes = (
        "vicinity_pair_bytes_total",
        "Bytes from one port of a network to another",
    );
    text.head(frames.0, "counter", frames.1);
    for (labels, [count, _]) in pairs {
        text.line(frames.0, labels, *count as f64);
    }
    text.head(bytes.0, "counter", bytes.1);
    for (labels, [_, count]) in pairs {
        text.line(bytes.0, labels, *count as f64);
    }
}

/// Writes the switches between VMs. They are rates, because the kernel keeps no totals of them. Writes
/// nothing if the kernel does not record them.
fn switches(text: &mut Text, reading: &Reading) {
    let Ok(switches) = &reading.switches else {
        return;
    };
    let name = "vicinity_switches_per_second";
    text.head(
        name,
        "gauge",
        "Switches of CPUs straight from one set of threads to another",
    );
    let vm = |id: &Id| reading.vms.get(id).map(|vm| vm.name.as_str());
    let set = |set: &ThreadSet| match set {
        ThreadSet::Guest(id) => vm(id).map(|vm| ("guest", vm.to_owned())),
        ThreadSet::Backend(id) => vm(id).map(|vm| ("backend", vm.to_owned())),
        ThreadSet::Network(network) => Some(("network", network.clone())),
    };
    for ((from, to), rate) in &switches.rates {
        if let (Some((from_set, from)), Some((to_set, to))) = (set(from), set(to)) {
            let labels = Labels::new(&[
                ("from", &from),
                ("from_set", from_set),
                ("to", &to),
                ("to_set", to_set),
            ]);
            text.line(name, &labels, *rate);
        }
    }
    let name = "vicinity_switches_watched_ratio";
    text.head(
        name,
        "gauge",
        "Part of the time in which switches were seen",
    );
    text.line(name, &Labels::default(), switches.watched);
}

/// Labels as text, which lines with the same labels share: `vm="web",set="guest"`.
#[derive(Clone, Debug, Default)]
pub struct Labels(String);

impl Labels {
    /// Returns labels with these names and texts.
    #[must_use]
    pub fn new(labels: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (label, value) in labels {
            if !text.is_empty() {
                text.push(',');
            }
            push_label(&mut text, label, value);
        }
        Self(text)
    }

    /// Returns the labels of a VM's port.
    #[must_use]
    pub fn port(network: &str, vm: &str) -> Self {
        Self::new(&[("network", network), ("vm", vm)])
    }

    /// Returns the labels of what one port sent to another.
    #[must_use]
    pub fn pair(network: &str, from: &str, to: &str) -> Self {
        Self::new(&[("network", network), ("from", from), ("to", to)])
    }
}

/// Appends a label. Escapes backslash, quote and line feed in its text.
fn push_label(to: &mut String, label: &str, text: &str) {
    to.push_str(label);
    to.push_str("=\"");
    for character in text.chars() {
        match character {
            '\n' => to.push_str("\\n"),
            '"' | '\\' => to.extend(['\\', character]),
            other => to.push(other),
        }
    }
    to.push('"');
}

/// A text in Prometheus' format, series by series.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Creates an empty text with capacity for this many bytes. The text can grow further, but that
    /// takes longer.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Begins a series.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0
            .push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Writes one value of a series.
    pub fn line(&mut self, name: &str, labels: &Labels, value: f64) {
        self.0.push_str(name);
        if !labels.0.is_empty() {
            for part in ["{", &labels.0, "}"] {
                self.0.push_str(part);
            }
        }
        self.value(value);
    }

    /// Writes one value of a series, with one more label.
    pub fn line_with(&mut self, name: &str, labels: &Labels, more: (&str, &str), value: f64) {
        self.begin(name, "", labels);
        let (label, text) = more;
        push_label(&mut self.0, label, text);
        self.0.push('}');
        self.value(value);
    }

    /// Writes one histogram of a series. Each bound is a text with the number of values that are not
    /// above it. `count` is the number of all values, and `sum` is their sum.
    pub fn histogram<'b>(
        &mut self,
        name: &str,
        labels: &Labels,
        bounds: impl Iterator<Item = (&'b str, u64)>,
        (count, sum): (u64, f64),
    ) {
        let begin = self.0.len();
        self.begin(name, "_bucket", labels);
        // All bucket lines of the histogram begin with this text.
        let bucket = self.0.split_off(begin);
        for (bound, below) in bounds.chain([("+Inf", count)]) {
            for part in [&bucket, "le=\"", bound, "\"}"] {
                self.0.push_str(part);
            }
            self.value(below as f64);
        }
        for (suffix, value) in [("_sum", sum), ("_count", count as f64)] {
            self.0.push_str(name);
            self.line(suffix, labels, value);
        }
    }

    /// Writes the part of a line before its last label.
    fn begin(&mut self, name: &str, suffix: &str, labels: &Labels) {
        let comma = if labels.0.is_empty() { "" } else { "," };
        for part in [name, suffix, "{", &labels.0, comma] {
            self.0.push_str(part);
        }
    }

    /// Writes a value and ends the line.
    fn value(&mut self, value: f64) {
        /// 2^53: an `f64` represents each whole number up to this one exactly.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        self.0.push(' ');
        if (0.0..EXACT).contains(&value) && value.fract() == 0.0 {
            // Nearly all values are whole numbers, and the general formatting takes longer.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "just looked at"
            )]
            let whole = value as u64;
            self.0.push_str(itoa::Buffer::new().format(whole));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(self.0, "{value}");
        }
        self.0.push('\n');
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::{reading, vm};

    #[test]
    fn a_reading_becomes_series() {
        let mut reading = reading(0);
        vm(
            &mut reading,
            10,
            "we\"b",
            &[("CPU 0/KVM", 1_500_000_000, 0)],
        );
        let text = render(&reading);
        let line = "vicinity_vm_cpu_seconds_total{vm=\"we\\\"b\",set=\"guest\"} 1.5\n";
        assert!(text.contains(line), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
        assert_eq!(text.matches("# TYPE").count(), 10);
    }

    #[test]
    fn labels_are_escaped_and_whole_numbers_written_as_such() {
        let mut text = Text::default();
        let labels = Labels::new(&[("b", "x\\y\"z\n"), ("c", "")]);
        text.line("a", &Labels::default(), 7.0);
        text.line("a", &labels, 0.25);
        text.line_with("a", &labels, ("d", "\""), u64::MAX as f64);
        text.line_with("a", &Labels::default(), ("d", "ü"), 1.0);
        let bounds = [("0.5", 1)].into_iter();
        text.histogram("h", &Labels::new(&[("d", "e")]), bounds, (3, 1e300));
        let expected = format!(
            "a 7\na{{b=\"x\\\\y\\\"z\\n\",c=\"\"}} 0.25\n\
             a{{b=\"x\\\\y\\\"z\\n\",c=\"\",d=\"\\\"\"}} 18446744073709552000\na{{d=\"ü\"}} 1\n\
             h_bucket{{d=\"e\",le=\"0.5\"}} 1\n\
             h_bucket{{d=\"e\",le=\"+Inf\"}} 3\nh_sum{{d=\"e\"}} {}\nh_count{{d=\"e\"}} 3\n",
            1e300
        );
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn switches_between_vms_have_the_names_of_their_sets() {
        let mut reading = reading(0);
        vm(&mut reading, 10, "web", &[("CPU 0/KVM", 0, 0)]);
        let id = *reading.vms.keys().next().unwrap();
        let pair = (ThreadSet::Network("lan".into()), ThreadSet::Guest(id));
        reading.switches = Ok(crate::reading::Switches {
            rates: [(pair, 12.5)].into(),
            watched: 0.25,
        });
        let text = render(&reading);
        let line = "vicinity_switches_per_second{from=\"lan\",from_set=\"network\",\
                    to=\"web\",to_set=\"guest\"} 12.5\n";
        assert!(text.contains(line), "{text}");
        assert!(
            text.ends_with("vicinity_switches_watched_ratio 0.25\n"),
            "{text}"
        );
    }
}
