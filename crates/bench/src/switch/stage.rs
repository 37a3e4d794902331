//! A switch with the benchmark's own generator, ready to be measured again and again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use front_end::frame;
use rustix::process::setpriority_process;

use crate::error::{Context, Error, Result};
use crate::interrupt;

use super::driver::{Driver, Kind};
use super::line::pin;
use super::load::{self, Flow, Pace, Seen, Until};
use super::peer::{self, GENERATOR_CPU, Peer, Shape, Switch};
use super::rig::{explain, wake};
use super::threads::Totals;

/// For a switch that brings its ports up in the background.
const SETTLE: Duration = Duration::from_secs(1);

/// Before what is counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// What is counted.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Bytes before a TCP payload.
pub(super) const HEADERS: usize = 14 + 20 + 20;

/// The frames of a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// Length of a frame, Ethernet header included.
    pub(super) length: usize,
    /// To be cut into segments of so many bytes (TSO); 0 for not at all.
    pub(super) segment: u16,
}

impl Frames {
    /// Features a driver needs for them.
    fn features(self) -> u64 {
        use front_end::features::{CSUM, GUEST_CSUM, GUEST_TSO4, HOST_TSO4};
        if self.segment == 0 {
            0
        } else {
            CSUM | GUEST_CSUM | HOST_TSO4 | GUEST_TSO4
        }
    }

    /// The NIC that sends and receives them.
    pub(super) fn kind(self) -> Kind {
        Kind {
            features: self.features(),
            longest: self.length,
        }
    }

    /// The network header (virtio 1.3, 5.1.6).
    fn header(self) -> [u8; 12] {
        let [low, high] = self.segment.to_le_bytes();
        if self.segment == 0 {
            [0; 12]
        } else {
            // Needs a checksum, TCP over IPv4, headers of 54 bytes; checksum at 34 + 16.
            [1, 1, 54, 0, low, high, 34, 0, 16, 0, 0, 0]
        }
    }
}

/// Address of the NIC with this number.
pub(super) fn mac(number: usize) -> [u8; 6] {
    frame::mac(u16::try_from(number + 1).unwrap_or(u16::MAX))
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// What the generator saw.
    pub(super) seen: Seen,
    /// CPU time of all threads of the switch, as a share of one core.
    pub(super) core_share: f64,
    /// Cycles of its busy rounds, by frame; `None` if it does not tell or nothing moved.
    pub(super) cycles_per_frame: Option<f64>,
    /// Share of the time that its threads waited for a CPU.
    pub(super) disturbed: f64,
}

/// The two, connected. The NICs are dropped first.
pub(super) struct Stage {
    pub(super) drivers: Vec<Driver>,
    pub(super) running: Box<dyn Switch>,
    pub(super) switch: Peer,
    /// Frames that each NIC has received so far.
    pub(super) received: Arc<[AtomicU64]>,
    folder: PathBuf,
    epoch: Instant,
}

impl Stage {
    /// Starts both and lets the switch rest. `name` is that of its folder below `run`.
    pub(super) fn start(
        switch: Peer,
        shape: Shape,
        frames: Frames,
        vicinity: &Path,
        run: &Path,
        name: &str,
    ) -> Result<Self> {
        let folder = run.join(name);
        fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
        let start = || {
            let running = peer::start(switch, shape, &folder, vicinity)?;
            let sockets = running.sockets().connect()?;
            let payload = vec![0; frames.length.saturating_sub(HEADERS)];
            let drivers = (0..).zip(sockets).map(|(number, socket)| {
                let frame = frame::tcp([0; 6], mac(number), 0, &payload);
                Driver::start(socket, frames.kind(), frames.header(), &frame)
            });
            let drivers: Vec<_> = drivers.collect::<Result<_>>()?;
            interrupt::sleep(SETTLE)?;
            running.rest(true)?;
            Ok((running, drivers))
        };
        let (running, drivers) = start().map_err(|error| explain(error, switch, &folder))?;
        Ok(Self {
            received: drivers.iter().map(|_| AtomicU64::default()).collect(),
            drivers,
            running,
            switch,
            folder,
            epoch: Instant::now(),
        })
    }

    /// One run: so many frames, for [`WINDOW`] after a warm-up.
    pub(super) fn run(&mut self, flows: &[Flow], pace: Pace) -> Result<Run> {
        let run = self.measure(flows, pace);
        run.map_err(|error| explain(error, self.switch, &self.folder))
    }

    /// As many frames as go, for as long as somebody is at work, before other programs; what comes of that.
    pub(super) fn load_during<T: Send>(
        &mut self,
        flows: &[Flow],
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let done = AtomicBool::new(false);
        let work = || {
            let found = come_first().and_then(|()| work());
            done.store(true, Ordering::Relaxed);
            found
        };
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let load = self.generate(flows, Pace::Saturate, Until::Told(&done));
            let failed = |_| Error::Host("the work under load failed".to_owned());
            let found = work.join().map_err(failed)?;
            load.and(found)
        })
    }

    fn measure(&mut self, flows: &[Flow], pace: Pace) -> Result<Run> {
        self.running.rest(false)?;
        self.generate(flows, pace, Until::After(WARM_UP))?;
        let (meter, totals) = (self.running.meter()?, Totals::of(self.running.id())?);
        let begin = Instant::now();
        let seen = self.generate(flows, pace, Until::After(WINDOW))?;
        let seconds = begin.elapsed().as_secs_f64();
        let spent = Totals::of(self.running.id())?.since(&totals);
        let cycles = self.running.meter()?.since(meter);
        self.running.rest(true)?;
        if seen.received == 0 {
            return Err(Error::Host(format!(
                "no frame came through {}: {} were sent",
                self.switch, seen.sent
            )));
        }
        Ok(Run {
            seen,
            core_share: spent.ran.as_secs_f64() / seconds,
            cycles_per_frame: cycles.map(|(cycles, _)| cycles),
            disturbed: spent.waited.as_secs_f64() / seconds,
        })
    }

    /// Runs the generator on its CPU, before other programs.
    fn generate(&mut self, flows: &[Flow], pace: Pace, until: Until<'_>) -> Result<Seen> {
        let (drivers, epoch) = (&mut self.drivers, self.epoch);
        let received = &self.received;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                pin(GENERATOR_CPU)?;
                come_first()?;
                load::run(drivers, flows, pace, until, epoch, received)
            });
            let failed = |_| Error::Host("the generator failed".to_owned());
            thread.join().map_err(failed)?
        })
    }
}

/// Have the calling thread, and no other, come before what else runs: it does not wait for the generator's CPU.
fn come_first() -> Result<()> {
    setpriority_process(None, -20).context(|| "raise a priority".to_owned())
}

impl Drop for Stage {
    fn drop(&mut self) {
        wake(self.running.as_ref());
    }
}
