//! `vicinity message`: endpoints of this host's processes, from the command line.

use std::path::Path;
use std::time::Duration;

use lab::bench::message::{Figures, Row};
use lab::interrupt;
use lab::stats::quantile;
use message::{Address, Board, Endpoint, MessageError, Options, Peer, limits, perf};

use crate::failure::Failure;
use crate::list;

/// Lengths that `perf` measures, in bytes: each protocol, and where the targets are.
pub(crate) const LENGTHS: [u32; 6] = [8, 64, 4096, 32_768, 65_536, 4 << 20];

/// About as long a measurement takes, on any machine.
const TIME: Duration = Duration::from_millis(300);

/// Messages that tell how many make that time, and how many are sent at least and at most.
const PROBE: u32 = 20;
const MOST: f64 = 2e6;

/// How long the other side may take to answer a connect.
const LIMIT: Duration = Duration::from_secs(5);

/// Answer `ping` and `perf` at `endpoint` until SIGINT or SIGTERM.
pub(crate) fn answer(board: &Path, endpoint: Option<u32>) -> Result<(), Failure> {
    interrupt::install()?;
    let options = Options {
        endpoint,
        ..Options::default()
    };
    let mut endpoint = open(board, &options)?;
    let Address { nic, endpoint: id } = endpoint.address();
    eprintln!("endpoint {id} on NIC {nic:012x} answers");
    while interrupt::check().is_ok() {
        perf::answer(&mut endpoint, || interrupt::check().is_ok())?;
    }
    Ok(())
}

/// Time `count` round trips to `peer` with messages of `length` bytes.
pub(crate) fn ping(board: &Path, peer: u32, length: u32, count: u32) -> Result<String, Failure> {
    let (mut endpoint, peer) = connect(board, peer)?;
    let times = perf::round_trips(
        &mut endpoint,
        peer,
        length,
        count,
        length as usize > limits::EAGER,
    )?;
    let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let [least, middle, high] = [0.0, 0.5, 0.99].map(|q| quantile(&micros, q));
    Ok(format!(
        "{count} round trips of {length} B: least {least:.2} us, median {middle:.2} us, \
         p99 {high:.2} us\n"
    ))
}

/// Measure latency, message rate and bandwidth to `peer` with messages of these `lengths`.
pub(crate) fn measure(
    board: &Path,
    peer: u32,
    lengths: &[u32],
    json: bool,
) -> Result<String, Failure> {
    let (mut endpoint, peer) = connect(board, peer)?;
    let mut rows = Vec::new();
    for &length in lengths {
        let mut figures = |heap| {
            interrupt::check()?;
            figures(&mut endpoint, peer, length, heap)
        };
        rows.push(Row {
            length,
            plain: figures(false)?,
            heap: figures(true)?,
        });
    }
    Ok(match json {
        true => list::as_json(&rows),
        false => table(&rows),
    })
}

fn figures(
    endpoint: &mut Endpoint,
    peer: Peer,
    length: u32,
    heap: bool,
) -> Result<Figures, Failure> {
    let mut trips = |count| perf::round_trips(endpoint, peer, length, count, heap);
    let count = enough(trips(PROBE)?.iter().sum());
    let times = trips(count)?;
    let halves = times.iter().map(|time| time.as_secs_f64() * 1e6 / 2.0);
    let halves: Vec<f64> = halves.collect();
    let mut stream = |count| perf::stream(endpoint, peer, length, count, heap);
    let count = enough(stream(PROBE)?);
    let time = stream(count)?;
    Ok(Figures {
        p50_us: quantile(&halves, 0.5),
        p99_us: quantile(&halves, 0.99),
        messages_per_s: f64::from(count) / time.as_secs_f64(),
    })
}

/// How many make [`TIME`] when [`PROBE`] of them took so long.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within bounds"
)]
fn enough(probe: Duration) -> u32 {
    let each = probe.as_secs_f64() / f64::from(PROBE);
    (TIME.as_secs_f64() / each).clamp(f64::from(PROBE), MOST) as u32
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>9}  {:>11}  {:>9}  {:>12}  {:>12}  {:>12}\n",
        "length", "one way, us", "p99, us", "messages/s", "GB/s", "heap, GB/s"
    );
    for Row {
        length,
        plain,
        heap,
    } in rows
    {
        let bytes = f64::from(*length) / 1e9;
        text += &format!(
            "{length:>9}  {:>11.3}  {:>9.3}  {:>12.0}  {:>12.2}  {:>12.2}\n",
            plain.p50_us,
            plain.p99_us,
            plain.messages_per_s,
            plain.messages_per_s * bytes,
            heap.messages_per_s * bytes
        );
    }
    text
}

fn open(board: &Path, options: &Options) -> Result<Endpoint, Failure> {
    let board = Board::open(board).map_err(MessageError::from)?;
    Ok(Endpoint::open(&board, options)?)
}

fn connect(board: &Path, peer: u32) -> Result<(Endpoint, Peer), Failure> {
    interrupt::install()?;
    let mut endpoint = open(board, &Options::default())?;
    let address = Address {
        endpoint: peer,
        ..endpoint.address()
    };
    let peer = endpoint.connect(address, 0, Some(LIMIT))?;
    Ok((endpoint, peer))
}
