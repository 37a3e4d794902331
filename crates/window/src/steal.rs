//! Steal time: whether the host has too few processors for the virtual CPUs of its VMs.
//!
//! A waiter that polls in such a VM may keep the processor from the VM that it waits for: the host
//! sees a busy virtual CPU, and a yield in the guest does not reach the host. A sleep does. KVM
//! counts the time in which a virtual CPU was runnable and did not run, and Linux in the guest
//! reports it as `steal` in `/proc/stat` (`Documentation/virt/kvm/x86/msr.rst`, `MSR_KVM_STEAL_TIME`).

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::raw;

/// The shortest time between two reads: a read takes up to some 100 us, with the number of CPUs.
const PERIOD: Duration = Duration::from_secs(1);

/// The host is overcommitted if at least one in so many ticks of busy virtual CPUs was stolen.
const BUSY_PER_STOLEN: u64 = 20;

/// Watches the steal time of this machine.
#[derive(Debug, Default)]
pub struct StealMonitor {
    read: Option<Instant>,
    last: CpuTimes,
    overcommitted: bool,
}

/// Ticks of all CPUs since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Ticks in which CPUs had work: they ran, or their time was stolen.
    pub busy: u64,
    /// Ticks in which the host ran something else.
    pub stolen: u64,
}

impl CpuTimes {
    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let [user, nice, system] = [next()?, next()?, next()?];
        let [_idle, _iowait, irq, softirq] = [next()?, next()?, next()?, next()?];
        let stolen = next()?;
        let busy = [user, nice, system, irq, softirq, stolen].into_iter();
        Some(Self {
            busy: busy.fold(0, u64::saturating_add),
            stolen,
        })
    }

    /// Returns whether much time was stolen since `before`.
    fn is_overcommitted_since(self, before: Self) -> bool {
        let stolen = self.stolen.saturating_sub(before.stolen);
        let busy = self.busy.saturating_sub(before.busy);
        stolen > 0 && stolen.saturating_mul(BUSY_PER_STOLEN) >= busy
    }
}

impl StealMonitor {
    /// Returns whether the host was overcommitted in the last period.
    #[must_use]
    pub fn is_overcommitted(&self) -> bool {
        self.overcommitted
    }

    /// Reads the steal time if a read is due. Without a hypervisor there is none.
    #[inline]
    pub fn update(&mut self, now: Instant) {
        let due = |read: Instant| now.saturating_duration_since(read) >= PERIOD;
        if self.read.is_none_or(due) {
            self.read_now(now);
        }
    }

    /// Records the times that were read at `now`.
    pub fn record(&mut self, times: CpuTimes, now: Instant) {
        let first = self.read.replace(now).is_none();
        self.overcommitted = !first && times.is_overcommitted_since(self.last);
        self.last = times;
    }

    #[cold]
    fn read_now(&mut self, now: Instant) {
        if raw::hypervisor().is_none() {
            self.read = Some(now);
            return;
        }
        // A process in a sandbox may not read it: then nothing counts as stolen.
        let mut text = [0; 256];
        let read = File::open("/proc/stat").and_then(|mut file| file.read(&mut text));
        let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
        let times = CpuTimes::parse(&String::from_utf8_lossy(text));
        self.record(times.unwrap_or_default(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(busy: u64, stolen: u64) -> CpuTimes {
        CpuTimes { busy, stolen }
    }

    #[test]
    fn steal_is_the_eighth_number_and_idle_time_is_not_busy() {
        let text = "cpu  100 20 30 9000 500 4 6 40 70 80\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(CpuTimes::parse(text), Some(times(200, 40)));
        assert_eq!(CpuTimes::parse("cpu  1 2 3"), None);
        assert_eq!(CpuTimes::parse(""), None);
    }

    #[test]
    fn one_stolen_tick_in_twenty_shows_overcommitment() {
        let before = times(1000, 100);
        assert!(times(1100, 105).is_overcommitted_since(before));
        assert!(!times(1101, 105).is_overcommitted_since(before));
        assert!(!before.is_overcommitted_since(before), "an idle VM");
    }

    #[test]
    fn it_is_read_once_a_period() {
        let (mut monitor, start) = (StealMonitor::default(), Instant::now());
        monitor.update(start);
        monitor.update(start + PERIOD / 2);
        assert_eq!(monitor.read, Some(start));
        assert!(!monitor.is_overcommitted(), "there was one sample");
        monitor.update(start + PERIOD);
        assert_eq!(monitor.read, Some(start + PERIOD));
        if raw::hypervisor().is_some() {
            assert!(monitor.last.busy > 0);
        }
    }
}
