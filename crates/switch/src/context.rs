//! What a worker has for itself while it forwards: its time, and memory to work in.

use std::time::Instant;

use vhost::fault::Fault;

use crate::capture_budget::CaptureBudget;
use crate::guard::Snapshot;
use crate::limits::{BURST, MAX_PORTS};
use crate::steering::WakeSet;
use crate::translate::Scratch;
use crate::uplink::BUFFER;

/// A worker's own things.
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker's number.
    pub worker: usize,
    /// The time of this round.
    pub now: Instant,
    /// Seconds since the start, for ageing.
    pub seconds: u32,
    /// What captures may cost.
    pub(crate) capture_budget: CaptureBudget,
    /// Workers to be woken: their receivers have been taken in hand.
    pub(crate) wakes: WakeSet,
    /// Ports found at fault.
    pub(crate) faults: Vec<(u16, Fault)>,
    /// What guards have seen of the frames of a burst.
    pub(crate) snapshots: Box<[Snapshot]>,
    pub(crate) scratch: Scratch,
    pub(crate) buffer: Box<[u8]>,
    /// Receivers that a port waits for, and by which pair.
    pub(crate) receivers: Vec<(u16, usize)>,
}

impl WorkerContext {
    /// For the worker with this number.
    #[must_use]
    pub fn new(worker: usize) -> Self {
        Self {
            worker,
            now: Instant::now(),
            seconds: 0,
            capture_budget: CaptureBudget::default(),
            wakes: WakeSet::NONE,
            faults: Vec::with_capacity(MAX_PORTS),
            snapshots: vec![Snapshot::default(); usize::from(BURST)].into_boxed_slice(),
            scratch: Scratch::default(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            receivers: Vec::with_capacity(MAX_PORTS),
        }
    }
}
