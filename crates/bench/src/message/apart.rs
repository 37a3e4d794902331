//! Measures messages of Vicinity between two members that share no memory, with the relay on a CPU of its own.
//!
//! Two programs and the relay would need three CPUs. This benchmark measures round trips on two: of two programs that
//! exchange one message, only one works at a time, so one thread on one CPU does
//! the work of both, and the relay has the other CPU. Each message crosses between CPUs twice, as it
//! would with three.
//!
//! The calls of each end have the same order as in `vicinity message perf`, which measures the direct transport. The
//! work that an end does after a send and before the answer can arrive would overlap with the message's way on three
//! CPUs; it does so here too, because the thread does this work before it polls the other end.

use std::path::Path;
use std::time::{Duration, Instant};

use message::{
    Address, Board, Code, Completion, Endpoint, LatencySamples, Memory, MessageError, Options,
    Pattern, Peer, Request,
};

use super::iterations::count;
use super::mediated::{ANSWERER, ASKER, Plane};
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use report::message_perf::Figures;
use vm_harness::affinity::on_cpu;
use vm_harness::error::{Context, Error, Result};

/// The longest message that this benchmark measures. While a longer message is sent, both ends work at the same time.
pub(super) const MAX_LENGTH: u32 = 4096;

/// The match value of all messages.
const VALUE: u64 = 1;

/// Polls for a completion between two reads of the clock.
const ROUNDS: u32 = 1000;

/// Longest time that a message may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The error of a message or a connection without a peer.
const UNREACHABLE: MessageError = MessageError::Connection(Code::Unreachable);

type Done<T> = std::result::Result<T, MessageError>;

/// The relay, which runs alone on its CPU, and the two endpoints.
pub(super) struct SeparateCpus {
    one: End,
    other: End,
    _plane: Plane,
}

/// An endpoint and its peer.
struct End {
    endpoint: Endpoint,
    peer: Peer,
}

impl SeparateCpus {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let folder = folder.join("apart");
        std::fs::create_dir_all(&folder).context(|| format!("make {}", folder.display()))?;
        let plane = Plane::start(program, &folder, Some(SWITCH_CPU))?;
        let (one, other) = (open(&folder.join(ASKER))?, open(&folder.join(ANSWERER))?);
        let [one, other] = connect(one, other).map_err(|error| failed(&error))?;
        Ok(Self {
            one,
            other,
            _plane: plane,
        })
    }

    /// Measures round trips. The message rate follows from the round trips, because only one message at a time is
    /// under way.
    pub(super) fn measure(&mut self, length: u32) -> Result<Figures> {
        on_cpu(GENERATOR_CPU, || self.round_trips(length))?.map_err(|error| failed(&error))
    }

    fn round_trips(&mut self, length: u32) -> Done<Figures> {
        let (one, other) = (&mut self.one, &mut self.other);
        let memory = || Memory::from(vec![0; length as usize]);
        let (mut there, mut back) = (memory(), memory());
        let trips = count(length, 256 << 20, 100_000);
        let mut asked = other.receive(memory())?;
        let start = Instant::now();
        // At most 100,000, so the conversion never fails.
        let mut laps = LatencySamples::start(usize::try_from(trips).unwrap_or_default());
        for _ in 0..trips {
            let question = one.send(there)?;
            let answered = one.receive(back)?;
            let got = finish(other, one, asked)?;
            let answer = other.send(got.memory)?;
            let sent = finish(other, one, answer)?;
            asked = other.receive(sent.memory)?;
            back = finish(one, other, answered)?.memory;
            laps.record();
            there = finish(one, other, question)?.memory;
        }
        let took = start.elapsed();
        let times = laps.times().into_iter();
        let halves: Vec<_> = times.map(|time| time.as_secs_f64() * 1e6 / 2.0).collect();
        let figures = Figures::new(&halves, 2 * trips, took);
        other.endpoint.cancel(asked)?;
        other.endpoint.forget(asked)?;
        Ok(figures)
    }
}

/// Converts the failure of an endpoint to an error of the benchmark.
fn failed(error: &MessageError) -> Error {
    Error::Host(format!("an endpoint of the benchmark failed: {error}"))
}

fn open(board: &Path) -> Result<Endpoint> {
    let board =
        Board::open(&board.join("message")).context(|| format!("open {}", board.display()))?;
    Endpoint::open(&board, &Options::default()).map_err(|error| failed(&error))
}

impl End {
    fn send(&mut self, memory: Memory) -> Done<Request> {
        self.endpoint.isend(self.peer, VALUE, memory)
    }

    fn receive(&mut self, memory: Memory) -> Done<Request> {
        self.endpoint.irecv(Pattern::exactly(VALUE), memory)
    }
}

/// Connects two endpoints.
fn connect(one: Endpoint, other: Endpoint) -> Done<[End; 2]> {
    let address = Address {
        nic: Board::nic_of(ANSWERER),
        ..other.address()
    };
    // Before the connection exists, each endpoint's only peer is itself.
    let end = |endpoint: Endpoint| End {
        peer: endpoint.own(),
        endpoint,
    };
    let (mut one, mut other) = (end(one), end(other));
    let request = one.endpoint.iconnect(address, 0, VALUE)?;
    one.peer = finish(&mut one, &mut other, request)?
        .status
        .peer
        .ok_or(UNREACHABLE)?;
    let sent = one.send(Memory::Empty)?;
    let request = other.receive(Memory::Empty)?;
    other.peer = finish(&mut other, &mut one, request)?
        .status
        .peer
        .ok_or(UNREACHABLE)?;
    finish(&mut one, &mut other, sent)?;
    Ok([one, other])
}

/// Makes progress at both ends until a request of `mine` has completed.
#[inline]
fn finish(mine: &mut End, other: &mut End, request: Request) -> Done<Completion> {
    let mut end = None;
    loop {
        for _ in 0..ROUNDS {
            if let Some(done) = mine.endpoint.test(request)? {
                return match done.status.code {
                    Code::Success => Ok(done),
                    code => Err(MessageError::Connection(code)),
                };
            }
        }
        other.endpoint.progress();
        if Instant::now() >= *end.get_or_insert_with(|| Instant::now() + LIMIT) {
            return Err(MessageError::Timeout);
        }
    }
}
