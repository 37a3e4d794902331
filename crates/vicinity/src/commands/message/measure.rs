//! `vicinity message`: command line tools that send and receive messages at endpoints of this host.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use message::{
    Address, Board, Code, Copies, Endpoint, MessageError, Options, Peer, limits,
    perf::{self, Kind, Load, WaitMode},
};
use report::message_perf::{Figures, Row};
use report::stats::quantile;
use serde::Serialize;
use vm_harness::interrupt;

use crate::commands::failure::Failure;
use crate::commands::output;
use crate::commands::signals::keep_running;

/// Lengths that `perf` measures, in bytes: at least one for each protocol, and those of the
/// performance targets.
pub(crate) const LENGTHS: [u32; 6] = [8, 64, 4096, 32_768, 65_536, 4 << 20];

/// Approximate time of a measurement, on any machine.
const TIME: Duration = Duration::from_millis(300);

/// Messages sent to estimate how many fit into that time, and the least and most messages of a
/// measurement.
const PROBE: u32 = 20;
const MAX_ROUNDS: f64 = 2e6;

/// Most round trips that `ping` times, because it stores each time in memory.
pub(crate) const MAX_ROUND_TRIPS: i64 = 100_000_000;

/// Least number of messages in flight to another member or host, for any length.
const REMOTE_SENDS: u8 = 4;

/// Longest time that the other side may take to answer a connect.
const LIMIT: Duration = Duration::from_secs(5);

/// Answers `ping` and `perf` at `endpoint` until SIGINT or SIGTERM.
pub(crate) fn answer(board: &Board, endpoint: Option<u32>, poll: bool) -> Result<(), Failure> {
    interrupt::install()?;
    let options = Options {
        endpoint,
        ..Options::default()
    };
    let mut endpoint = Endpoint::open(board, &options)?;
    let Address { nic, endpoint: id } = endpoint.address();
    eprintln!("answering at endpoint {id} on NIC {nic:012x}");
    while interrupt::check().is_ok() {
        perf::answer(&mut endpoint, wait_mode(poll), &keep_running)?;
    }
    Ok(())
}

fn wait_mode(poll: bool) -> WaitMode {
    match poll {
        true => WaitMode::Poll,
        false => WaitMode::Block,
    }
}

/// What round trips took, in microseconds.
#[derive(Debug, Serialize)]
struct RoundTrips {
    count: u32,
    length: u32,
    least_us: f64,
    p50_us: f64,
    p99_us: f64,
    /// Large messages that came back: by one copy, how many of these were copied by both sides, or streamed.
    copied_once: u64,
    shared: u64,
    streamed: u64,
}

/// Measures the times of `count` round trips to `peer` with messages of `length` bytes.
pub(crate) fn ping(
    board: &Board,
    to: &EndpointName,
    (length, count): (u32, u32),
    poll: bool,
    json: bool,
) -> Result<String, Failure> {
    let (mut endpoint, peer) = connect(board, to)?;
    let memory = match length as usize > limits::EAGER {
        true => Kind::Shared,
        false => Kind::Program,
    };
    let load = Load {
        memory,
        length,
        count,
        window: 1,
    };
    let times = perf::round_trips(&mut endpoint, peer, load, wait_mode(poll), &keep_running);
    let times = times.map_err(|error| unreached(to, error))?;
    let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let [least_us, p50_us, p99_us] = [0.0, 0.5, 0.99].map(|q| quantile(&micros, q));
    let Copies {
        once,
        shared,
        streamed,
    } = endpoint.copies();
    let trips = RoundTrips {
        count,
        length,
        least_us,
        p50_us,
        p99_us,
        copied_once: once,
        shared,
        streamed,
    };
    let how = match (once, streamed) {
        (0, 0) => "",
        (_, 0) if shared > 0 => ", copied once, by both sides",
        (_, 0) => ", copied once",
        (0, _) => ", streamed",
        _ => ", some streamed",
    };
    Ok(match json {
        true => output::as_json(&trips),
        false => format!(
            "{count} round trips of {length} B: least {least_us:.2} us, median {p50_us:.2} us, \
             p99 {p99_us:.2} us{how}\n"
        ),
    })
}

/// Measures latency, message rate and bandwidth to `peer` with messages of these `lengths`.
pub(crate) fn measure(
    board: &Board,
    to: &EndpointName,
    lengths: &[u32],
    json: bool,
) -> Result<String, Failure> {
    let peer_is_far = to.member.is_some();
    let (mut endpoint, peer) = connect(board, to)?;
    let mut rows = Vec::new();
    for &length in lengths {
        let mut figures = |memory| {
            interrupt::check()?;
            let window = match peer_is_far {
                // For each message, one host waits for the other's answer. Meanwhile, other messages use the
                // link.
                true => perf::window(length).max(REMOTE_SENDS),
                false => perf::window(length),
            };
            let load = Load {
                memory,
                length,
                count: 0,
                window,
            };
            figures(&mut endpoint, peer, load).map_err(|error| unreached(to, error))
        };
        rows.push(Row {
            length,
            plain: figures(Kind::Program)?,
            heap: figures(Kind::Heap)?,
            shared: figures(Kind::Shared)?,
        });
    }
    Ok(match json {
        true => output::as_json(&rows),
        false => table(&rows),
    })
}

fn figures(endpoint: &mut Endpoint, peer: Peer, load: Load) -> Result<Figures, MessageError> {
    let load = |count| Load { count, ..load };
    let mut trips =
        |count| perf::round_trips(endpoint, peer, load(count), WaitMode::Block, &keep_running);
    let count = enough(trips(PROBE)?.iter().sum());
    let times = trips(count)?;
    let halves = times.iter().map(|time| time.as_secs_f64() * 1e6 / 2.0);
    let halves: Vec<f64> = halves.collect();
    let mut stream = |count| perf::stream(endpoint, peer, load(count), &keep_running);
    let count = enough(stream(PROBE)?);
    let time = stream(count)?;
    Ok(Figures {
        p50_us: quantile(&halves, 0.5),
        p99_us: quantile(&halves, 0.99),
        messages_per_s: f64::from(count) / time.as_secs_f64(),
    })
}

/// Returns how many messages take [`TIME`] if [`PROBE`] messages took this long.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within bounds"
)]
fn enough(probe: Duration) -> u32 {
    let each = probe.as_secs_f64() / f64::from(PROBE);
    (TIME.as_secs_f64() / each).clamp(f64::from(PROBE), MAX_ROUNDS) as u32
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>9}  {:>11}  {:>9}  {:>12}  {:>12}  {:>12}  {:>12}\n",
        "length", "one way, us", "p99, us", "messages/s", "GB/s", "heap, GB/s", "shared, GB/s"
    );
    for Row {
        length,
        plain,
        heap,
        shared,
    } in rows
    {
        let bytes = f64::from(*length) / 1e9;
        text += &format!(
            "{length:>9}  {:>11.3}  {:>9.3}  {:>12.0}  {:>12.2}  {:>12.2}  {:>12.2}\n",
            plain.p50_us,
            plain.p99_us,
            plain.messages_per_s,
            plain.messages_per_s * bytes,
            heap.messages_per_s * bytes,
            shared.messages_per_s * bytes
        );
    }
    text
}

fn connect(board: &Board, to: &EndpointName) -> Result<(Endpoint, Peer), Failure> {
    interrupt::install()?;
    let mut endpoint = Endpoint::open(board, &Options::default())?;
    let member = to.member.as_deref();
    member.into_iter().for_each(|name| board.discover(name));
    let address = Address {
        nic: member.map_or(board.nic(), |name| board.find(name)),
        endpoint: to.endpoint,
    };
    let connected = endpoint.connect(address, 0, Some(LIMIT));
    let peer = connected.map_err(|error| unreached(to, error))?;
    Ok((endpoint, peer))
}

fn unreached(to: &EndpointName, error: MessageError) -> Failure {
    Failure::Unreached {
        advice: advice(&error),
        to: to.to_string(),
        error,
    }
}

/// Returns the remedy for an error.
fn advice(error: &MessageError) -> &'static str {
    match error {
        MessageError::UnknownNic(_) => {
            "; in a VM, run `vicinity message join`; on a host, add the member `host` to the configuration"
        }
        MessageError::Connection(Code::Closed) => {
            "; start `vicinity message answer --endpoint` with this number there"
        }
        MessageError::Connection(Code::Unknown) => {
            "; `vicinity message info` on the host lists the members, and the file `hosts` on the board lists \
                other hosts"
        }
        MessageError::Connection(Code::BadKey) => {
            "; the endpoint has a key, so `vicinity message answer` does not run there; give the endpoint of \
                one"
        }
        MessageError::Timeout => {
            "; its process is stopped or busy, or is not `vicinity message answer`; check it there"
        }
        _ => "",
    }
}

/// The endpoint to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointName {
    /// `None` for an endpoint on this board.
    member: Option<String>,
    endpoint: u32,
}

impl fmt::Display for EndpointName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.member {
            Some(member) => write!(to, "{member}:{}", self.endpoint),
            None => write!(to, "{}", self.endpoint),
        }
    }
}

impl FromStr for EndpointName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (member, number) = match text.rsplit_once(':') {
            Some((member, number)) => (Some(member.to_owned()), number),
            None => (None, text),
        };
        let endpoint = number.parse().map_err(|_| {
            "write a number, or a member of the message plane and a number: 7, web:7".to_owned()
        })?;
        Ok(Self { member, endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_here_or_of_a_member() {
        let to = |text: &str| {
            text.parse::<EndpointName>()
                .map(|to| (to.member, to.endpoint))
        };
        assert_eq!(to("7"), Ok((None, 7)));
        assert_eq!(to("web:7"), Ok((Some("web".to_owned()), 7)));
        assert!(to("web").is_err() && to("web:").is_err() && to("").is_err());
    }
}
