//! The state of one worker: its clock and its scratch memory.

use std::time::Instant;

use vhost::fault::Fault;

use crate::capture_budget::CaptureBudget;
use crate::clock;
use crate::guard::Snapshot;
use crate::limits::{BURST, MAX_PORTS};
use crate::steering::WakeSet;
use crate::translate::Scratch;
use crate::uplink::BUFFER;

/// The state of one worker, which no other thread accesses (VPP: per-thread data).
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker's number.
    pub worker: usize,
    /// The time at the start of this round.
    pub now: Instant,
    /// Seconds since the network started, for ageing.
    pub seconds: u32,
    /// The CPU time that captures may use.
    pub(crate) capture_budget: CaptureBudget,
    /// Workers to wake at the end of the round: they had enabled kicks on receive rings that this
    /// worker has filled and whose kicks it has disabled.
    pub(crate) wakes: WakeSet,
    /// Ports to end, and their faults.
    pub(crate) faults: Vec<(u16, Fault)>,
    /// The first bytes of the frames of a burst, as guards have checked them.
    pub(crate) snapshots: Box<[Snapshot]>,
    pub(crate) scratch: Scratch,
    pub(crate) buffer: Box<[u8]>,
    /// Scratch list of the receivers that a port waits for, with the sender's pair.
    pub(crate) receivers: Vec<(u16, usize)>,
}

impl WorkerContext {
    /// Creates the context of the worker with this number.
    #[must_use]
    pub fn new(worker: usize) -> Self {
        Self {
            worker,
            now: clock::now(),
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
