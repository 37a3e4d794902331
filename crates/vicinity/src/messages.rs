//! `vicinity message`: endpoints of this host's processes, from the command line.

use std::path::Path;
use std::time::Duration;

use lab::interrupt;
use lab::stats::quantile;
use message::{Address, Board, Endpoint, MessageError, Options, Peer, perf};

use crate::failure::Failure;

/// Lengths that `perf` measures, in bytes: each protocol, and where the targets are.
const LENGTHS: [u32; 6] = [8, 64, 4096, 32_768, 65_536, 4 << 20];

/// Most messages of a measurement, and most bytes.
const MESSAGES: u64 = 1_000_000;
const BYTES: u64 = 2 << 30;

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
    let times = perf::round_trips(&mut endpoint, peer, length, count)?;
    let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let [least, middle, high] = [0.0, 0.5, 0.99].map(|q| quantile(&micros, q));
    Ok(format!(
        "{count} round trips of {length} B: least {least:.2} us, median {middle:.2} us, \
         p99 {high:.2} us\n"
    ))
}

/// Measure latency, message rate and bandwidth to `peer`.
pub(crate) fn measure(board: &Path, peer: u32) -> Result<String, Failure> {
    let (mut endpoint, peer) = connect(board, peer)?;
    let mut text = format!(
        "{:>9}  {:>11}  {:>9}  {:>12}  {:>12}  {:>12}\n",
        "length", "one way, us", "p99, us", "messages/s", "GB/s", "heap, GB/s"
    );
    for length in LENGTHS {
        interrupt::check()?;
        let count = u32::try_from((BYTES / u64::from(length)).clamp(1, MESSAGES)).unwrap_or(1);
        let times = perf::round_trips(&mut endpoint, peer, length, count.div_ceil(20))?;
        let halves = times.iter().map(|time| time.as_secs_f64() * 1e6 / 2.0);
        let halves: Vec<f64> = halves.collect();
        let mut rate = |heap| {
            let time = perf::stream(&mut endpoint, peer, length, count, heap)?;
            Ok::<f64, MessageError>(f64::from(count) / time.as_secs_f64())
        };
        let (plain, heap) = (rate(false)?, rate(true)?);
        let bytes = f64::from(length) / 1e9;
        text += &format!(
            "{length:>9}  {:>11.3}  {:>9.3}  {plain:>12.0}  {:>12.2}  {:>12.2}\n",
            quantile(&halves, 0.5),
            quantile(&halves, 0.99),
            plain * bytes,
            heap * bytes
        );
    }
    Ok(text)
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
