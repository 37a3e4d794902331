//! Runs traffic between two VMs and reads its figures.
//!
//! The serving VM runs `iperf3` and `sockperf` servers all the time ([`serve`]); each function that measures runs one
//! client in the other VM and parses its report.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::vm::Vm;

/// Time that a client may take beyond the duration of its measurement: for its start, its warm-up and the end of the
/// connection.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(30);

const SOCKPERF_PORT: u16 = 11111;

/// A TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tcp {
    /// Payload received, Mbit/s.
    pub mbit_s: f64,
    /// Payload received, bytes.
    pub bytes: f64,
    /// Retransmitted segments.
    pub retransmits: u64,
}

/// A UDP stream, sent as fast as the sender can.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Udp {
    /// Payload received, Mbit/s.
    pub mbit_s: f64,
    /// Messages lost, percent of those sent.
    pub loss_percent: f64,
    /// Messages sent.
    pub sent: u64,
}

/// Requests and responses, one exchange at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Median of the full round trip, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, microseconds.
    #[serde(default)]
    pub p999_us: f64,
    /// Exchanges counted.
    pub exchanges: u64,
    /// Mean of the full round trip, microseconds.
    #[serde(default)]
    pub mean_us: f64,
}

/// Starts the servers in `vm`. They listen on all addresses of the VM until it stops.
///
/// # Errors
/// A server does not start.
pub fn serve(vm: &Vm) -> Result<()> {
    serve_by(vm, "")
}

/// Like [`serve`], by a command that runs programs: `by` is empty, or ends with a space.
///
/// # Errors
/// As for [`serve`].
pub fn serve_by(vm: &Vm, by: &str) -> Result<()> {
    let limit = Duration::from_secs(30);
    vm.check(&format!("{by}iperf3 --server --daemon"), limit)?;
    for carrier in ["--tcp", ""] {
        vm.check(
            &format!("setsid {by}sockperf server {carrier} --ip 0.0.0.0 --port {SOCKPERF_PORT} </dev/null >/run/sockperf{carrier}.log 2>&1 &"),
            limit,
        )?;
    }
    let up = format!(
        "for i in $(seq 100); do test $(ss -Htuln '( sport = :{SOCKPERF_PORT} or sport = :5201 )' | wc -l) -ge 3 && exit; sleep 0.1; done; cat /run/sockperf*.log; exit 1"
    );
    vm.check(&up, limit).map(drop)
}

/// Sends TCP from `client` to `target` for `seconds`.
///
/// # Errors
/// The client fails or its report cannot be read.
pub fn tcp(client: &Vm, target: &str, seconds: u32) -> Result<Tcp> {
    tcp_by(client, "", target, seconds)
}

/// Like [`tcp`], by a command that runs the client: `by` is empty, or ends with a space.
///
/// # Errors
/// As for [`tcp`].
pub fn tcp_by(client: &Vm, by: &str, target: &str, seconds: u32) -> Result<Tcp> {
    let report = iperf(client, by, target, seconds, "")?;
    parse_tcp(&report)
}

/// Sends UDP messages of `size` bytes from `client` to `target` for `seconds`, unpaced.
///
/// # Errors
/// The client fails or its report cannot be read.
pub fn udp(client: &Vm, target: &str, seconds: u32, size: u32) -> Result<Udp> {
    let report = iperf(
        client,
        "",
        target,
        seconds,
        &format!("--udp --bitrate 0 --length {size}"),
    )?;
    parse_udp(&report)
}

/// Exchanges TCP messages of `size` bytes between `client` and `target` for `seconds`.
///
/// # Errors
/// The client fails or its report cannot be read.
pub fn ping_pong(client: &Vm, target: &str, seconds: u32, size: u32) -> Result<RoundTrip> {
    ping_pong_by(client, "", target, seconds, size)
}

/// Like [`ping_pong`], by a command that runs the client: `by` is empty, or ends with a space.
///
/// # Errors
/// As for [`ping_pong`].
pub fn ping_pong_by(
    client: &Vm,
    by: &str,
    target: &str,
    seconds: u32,
    size: u32,
) -> Result<RoundTrip> {
    sockperf(client, by, target, seconds, size, "--tcp")
}

/// Like [`ping_pong`], with UDP messages.
///
/// # Errors
/// As for [`ping_pong`].
pub fn ping_pong_udp(client: &Vm, target: &str, seconds: u32, size: u32) -> Result<RoundTrip> {
    sockperf(client, "", target, seconds, size, "")
}

fn sockperf(
    client: &Vm,
    by: &str,
    target: &str,
    seconds: u32,
    size: u32,
    carrier: &str,
) -> Result<RoundTrip> {
    let command = format!(
        "{by}sockperf ping-pong {carrier} --ip {target} --port {SOCKPERF_PORT} --msg-size {size} --time {seconds} --full-rtt 2>&1"
    );
    parse_sockperf(&client.check(&command, limit(seconds))?)
}

fn iperf(client: &Vm, by: &str, target: &str, seconds: u32, more: &str) -> Result<String> {
    let command = format!("{by}iperf3 --client {target} --time {seconds} --json {more}");
    client.check(&command, limit(seconds))
}

fn limit(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into()) + TIMEOUT_MARGIN
}

/// Returns a number in iperf3's report.
fn number(report: &Value, path: &str) -> Option<f64> {
    report.pointer(path)?.as_f64()
}

fn parse_tcp(text: &str) -> Result<Tcp> {
    let read = || {
        let report: Value = serde_json::from_str(text).ok()?;
        Some(Tcp {
            mbit_s: number(&report, "/end/sum_received/bits_per_second")? / 1e6,
            bytes: number(&report, "/end/sum_received/bytes")?,
            retransmits: report.pointer("/end/sum_sent/retransmits")?.as_u64()?,
        })
    };
    read().ok_or_else(|| Error::unreadable("iperf3's TCP report", text))
}

fn parse_udp(text: &str) -> Result<Udp> {
    let read = || {
        let report: Value = serde_json::from_str(text).ok()?;
        Some(Udp {
            mbit_s: number(&report, "/end/sum_received/bits_per_second")? / 1e6,
            loss_percent: number(&report, "/end/sum_received/lost_percent")?,
            sent: report.pointer("/end/sum_sent/packets")?.as_u64()?,
        })
    };
    read().ok_or_else(|| Error::unreadable("iperf3's UDP report", text))
}

fn parse_sockperf(text: &str) -> Result<RoundTrip> {
    let percentile = |which: &str| -> Option<f64> {
        let mut lines = text.lines().filter(|line| line.contains("percentile"));
        let line = lines.find(|line| line.contains(which))?;
        line.rsplit('=').next()?.trim().parse().ok()
    };
    let read = || {
        let valid = text
            .lines()
            .find(|line| line.contains("[Valid Duration]"))?;
        let (_, count) = valid.rsplit_once("ReceivedMessages=")?;
        // Without --full-rtt sockperf prints half of the round trip: this function rejects such a report.
        let (_, mean) = text.split_once("Summary: Round trip is ")?;
        Some(RoundTrip {
            p50_us: percentile(" 50.000")?,
            p99_us: percentile(" 99.000")?,
            p999_us: percentile(" 99.900")?,
            exchanges: count.trim().parse().ok()?,
            mean_us: mean.split(' ').next()?.parse().ok()?,
        })
    };
    read().ok_or_else(|| Error::unreadable("sockperf's report", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_is_what_arrived() {
        let text = r#"{"end": {"sum_sent": {"bytes": 9, "bits_per_second": 9, "retransmits": 14},
            "sum_received": {"bytes": 2161377280, "bits_per_second": 17241328730.6}}}"#;
        let got = parse_tcp(text).unwrap();
        assert!((got.mbit_s - 17_241.328).abs() < 0.01);
        assert_eq!(got.retransmits, 14);
    }

    #[test]
    fn udp_is_what_arrived() {
        let text = r#"{"end": {"sum_sent": {"packets": 140960},
            "sum": {"bits_per_second": 1154636938.7}, "sum_received":
            {"bits_per_second": 437213713.2, "lost_percent": 62.125, "lost_packets": 87572}}}"#;
        let got = parse_udp(text).unwrap();
        assert!((got.mbit_s - 437.2137).abs() < 0.001);
        assert!((got.loss_percent - 62.125).abs() < 1e-9);
        assert_eq!(got.sent, 140_960);
    }

    const SOCKPERF: &str = "\
sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; SentMessages=39323; ReceivedMessages=39322
sockperf: [Valid Duration] RunTime=0.551 sec; SentMessages=19783; ReceivedMessages=19783
sockperf: Summary: Round trip is 27.836 usec
sockperf: Total 19783 observations; each percentile contains 197.83 observations
sockperf: ---> percentile 99.990 = 5093.762
sockperf: ---> percentile 99.900 = 3485.357
sockperf: ---> percentile 99.000 =   46.539
sockperf: ---> percentile 50.000 =   13.500
";

    #[test]
    fn sockperf_percentiles_are_distinguished() {
        let got = parse_sockperf(SOCKPERF).unwrap();
        assert!((got.p50_us - 13.5).abs() < 1e-9 && (got.p99_us - 46.539).abs() < 1e-9);
        assert_eq!(got.exchanges, 19783);
        assert!((got.mean_us - 27.836).abs() < 1e-9);
    }

    #[test]
    fn half_round_trips_are_refused() {
        let half = SOCKPERF.replace("Round trip is", "Latency is");
        assert!(parse_sockperf(&half).is_err());
    }

    #[test]
    fn an_error_report_is_not_a_figure() {
        assert!(parse_tcp(r#"{"error": "connection refused"}"#).is_err());
        assert!(parse_udp("").is_err());
    }
}
