//! Runs streams with iperf3, and requests with sockperf.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::pace::WARM_UP;
use crate::second_host::PORTS;
use vm_harness::error::{Error, Result};
use vm_harness::vm::{Job, Vm};
use vm_harness::workload::{self, RoundTrip};

/// A stream, or several equal ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow<'a> {
    pub(super) target: &'a str,
    pub(super) udp: bool,
    /// Bytes of a message.
    pub(super) size: u32,
    pub(super) parallel: u32,
    /// Seconds of the measurement, after the warm-up.
    pub(super) seconds: u32,
}

/// Results of a flow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowResult {
    /// Payload received, Mbit/s.
    pub(super) mbit_s: f64,
    /// Percent of the sent datagrams that did not arrive.
    pub(super) loss_pct: f64,
    /// The sender's rate in each 100 ms, Mbit/s.
    pub(super) pieces: Vec<f64>,
}

/// A running flow.
pub(super) struct Started<'vm> {
    job: Job<'vm>,
    limit: Duration,
}

impl Flow<'_> {
    pub(super) fn start<'vm>(&self, client: &'vm Vm) -> Result<Started<'vm>> {
        let udp = if self.udp { "--udp --bitrate 0" } else { "" };
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len();
        let port = PORTS.get(turn).copied().unwrap_or(5201);
        let command = format!(
            "iperf3 --client {} --port {port} --time {} --omit {WARM_UP} --interval 0.1 --length {} --parallel {} {udp} --json",
            self.target, self.seconds, self.size, self.parallel
        );
        let limit =
            Duration::from_secs(u64::from(self.seconds + WARM_UP)) + Duration::from_secs(30);
        Ok(Started {
            job: client.start(&command)?,
            limit,
        })
    }

    /// Starts a flow and waits for its end. Each request whether the flow has ended costs the guest CPU time, so the
    /// harness sends the first one when the flow should have ended.
    pub(super) fn run(&self, client: &Vm) -> Result<FlowResult> {
        let started = self.start(client)?;
        vm_harness::interrupt::sleep(Duration::from_secs((self.seconds + WARM_UP).into()))?;
        started.wait()
    }
}

impl Started<'_> {
    pub(super) fn wait(self) -> Result<FlowResult> {
        let output = self.job.wait(self.limit)?;
        parse(&output.stdout).ok_or_else(|| {
            let said = serde_json::from_str::<Value>(&output.stdout).ok();
            let error = said.and_then(|report| Some(report.get("error")?.as_str()?.to_owned()));
            match error {
                Some(error) => Error::Host(format!("iperf3: {error}")),
                None => Error::unreadable("iperf3's report", &(output.stdout + &output.stderr)),
            }
        })
    }
}

fn parse(text: &str) -> Option<FlowResult> {
    let report: Value = serde_json::from_str(text).ok()?;
    let number = |path: &str| report.pointer(path)?.as_f64();
    let pieces = report
        .get("intervals")?
        .as_array()?
        .iter()
        .filter_map(|interval| {
            let sum = interval.get("sum")?;
            let counts = sum.get("omitted")?.as_bool() == Some(false);
            // The last interval may be only a few milliseconds long.
            let whole = sum.get("seconds")?.as_f64()? > 0.05;
            (counts && whole).then_some(sum.get("bits_per_second")?.as_f64()? / 1e6)
        });
    Some(FlowResult {
        mbit_s: number("/end/sum_received/bits_per_second")? / 1e6,
        loss_pct: lost(&number),
        pieces: pieces.collect(),
    })
}

/// Returns the percentage of the sent datagrams that did not arrive. iperf3's own figure also counts losses of the
/// warm-up, and may exceed 100 %.
fn lost(number: &dyn Fn(&str) -> Option<f64>) -> f64 {
    let sent = number("/end/sum_sent/bits_per_second");
    let arrived = number("/end/sum_received/bits_per_second");
    let share = arrived.zip(sent).map(|(arrived, sent)| arrived / sent);
    let share = share.filter(|share| share.is_finite()).unwrap_or(1.0);
    (100.0 * (1.0 - share)).max(0.0)
}

impl Flow<'_> {
    /// Runs requests and responses of the flow's message size, one at a time, instead of the stream.
    pub(super) fn requests(&self, client: &Vm) -> Result<RoundTrip> {
        let exchange = match self.udp {
            true => workload::ping_pong_udp,
            false => workload::ping_pong,
        };
        exchange(client, self.target, self.seconds, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_the_warm_up_do_not_count() {
        let text = r#"{"intervals": [
            {"sum": {"seconds": 0.1, "bits_per_second": 9e6, "omitted": true}},
            {"sum": {"seconds": 0.1, "bits_per_second": 2e6, "omitted": false}},
            {"sum": {"seconds": 0.001, "bits_per_second": 1e6, "omitted": false}}],
            "end": {"sum_sent": {"bits_per_second": 4e6},
            "sum_received": {"bits_per_second": 3e6, "lost_percent": 179.3}}}"#;
        let flown = parse(text).unwrap();
        assert_eq!(
            flown,
            FlowResult {
                mbit_s: 3.0,
                loss_pct: 25.0,
                pieces: vec![2.0]
            }
        );
        assert_eq!(parse(r#"{"error": "unable to connect"}"#), None);
    }
}
