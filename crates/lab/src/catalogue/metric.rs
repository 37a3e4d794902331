//! Metrics of samples: keys, titles and units.

/// Names of the thread sets, which are the prefixes of their metrics' keys.
pub const SETS: [&str; 5] = ["vm1", "vm2", "idle", "guests", "backend"];

/// Keys, titles and units of metrics: `KEY`, `vm1_KEY`, `backend_KEY`.
const METRICS: [(&str, &str, &str); 60] = [
    ("mbit_s", "throughput received", "Mbit/s"),
    ("loss_pct", "lost", "%"),
    ("trans_s", "transactions", "1/s"),
    ("udp_trans_s", "transactions over UDP", "1/s"),
    ("udp_p50_us", "round trip over UDP, median", "µs"),
    ("udp_p99_us", "round trip over UDP, p99", "µs"),
    ("udp_p999_us", "round trip over UDP, p99.9", "µs"),
    ("p50_us", "round trip, median", "µs"),
    ("p99_us", "round trip, p99", "µs"),
    ("p999_us", "round trip, p99.9", "µs"),
    ("lookup_ns", "a look-up", "ns"),
    ("lookup_pct", "look-ups, of the time between messages", "%"),
    ("use_pct", "on a CPU", "%"),
    ("wait_pct", "waiting for a CPU", "%"),
    ("block_pct", "blocked", "%"),
    ("exec_s", "executions", "1/s"),
    ("us_exec", "CPU time per execution", "µs"),
    ("switches_s", "context switches", "1/s"),
    ("vm_switches_s", "switches between VMs", "1/s"),
    ("s_gb", "CPU time for each GB", "s/GB"),
    (
        "cpu_s_gb",
        "CPU time of guests and backend for each GB",
        "s/GB",
    ),
    ("bells", "doorbells for each packet", ""),
    (
        "instructions_kb",
        "guests' instructions for each KB",
        "1/KB",
    ),
    ("switches_mb", "context switches per MB", "1/MB"),
    ("cov", "coefficient of variation", ""),
    ("worst", "worst over median", ""),
    ("vms", "VMs at once", ""),
    ("recovery_ms", "time to recover", "ms"),
    ("slow_fast", "switches per MB, slowest over fastest run", ""),
    ("req_s", "requests served", "1/s"),
    ("kb_s", "served", "kB/s"),
    ("ratio", "aggregated throughput ratio", ""),
    ("reply_ms", "reply time, mean", "ms"),
    ("reply_p50_ms", "reply time, median", "ms"),
    ("reply_p99_ms", "reply time, p99", "ms"),
    ("reply_p999_ms", "reply time, p99.9", "ms"),
    ("transfer_ms", "transfer time, mean", "ms"),
    ("create_s", "creation time", "s"),
    ("start_s", "start time", "s"),
    ("first_s", "time to its first answer", "s"),
    ("pages_s", "pages (bytes/4096)", "1/s"),
    ("pages_exec", "pages per execution", ""),
    ("lost", "area of the dip", "requests"),
    ("dip_s", "area of the dip", "s"),
    ("throttled_pct", "throttled by the cap", "%"),
    ("copy_pct", "copying", "%"),
    ("message_pct", "work for each message", "%"),
    ("driver_pct", "drivers", "%"),
    ("hits", "ticks of the guest's profile", ""),
    ("mbit_p10", "throughput of 100 ms, 10 % are lower", "Mbit/s"),
    ("mbit_p50", "throughput of 100 ms, median", "Mbit/s"),
    (
        "mbit_p90",
        "throughput of 100 ms, 10 % are higher",
        "Mbit/s",
    ),
    ("job_s", "completion of a job", "s"),
    ("cpu_pct", "CPU of guest and backend", "%"),
    ("slots", "slots that it may use", ""),
    ("used", "slots in use", ""),
    ("mib", "memory of the host", "MiB"),
    ("idle_slots", "slots without jobs", ""),
    ("idle_mib", "memory without jobs", "MiB"),
    ("write_ms", "a job's file written", "ms"),
];

/// Returns the title and unit of a metric.
#[must_use]
pub fn metric(key: &str) -> (String, &'static str) {
    let (part, rest) = key.split_once('_').unwrap_or_default();
    let (part, rest) = if SETS.contains(&part) {
        (part, rest)
    } else {
        ("", key)
    };
    let (rest, varies) = rest
        .strip_suffix("_cov")
        .map_or((rest, false), |base| (base, true));
    let known = METRICS.iter().find(|known| known.0 == rest);
    let (title, unit) = known.map_or((rest, ""), |known| (known.1, known.2));
    let title = [part, title].join(" ").trim().to_owned();
    if varies {
        (format!("{title}, coefficient of variation"), "")
    } else {
        (title, unit)
    }
}
