//! CPU time of processes and of the kernel threads that carry frames for them.

use std::fs;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::host;

/// Returns the CPU time (user and system) that all threads of a process and of its children have used.
///
/// # Errors
/// The process has ended.
pub fn of_process(id: u32) -> Result<Duration> {
    let children = host::family(id).into_iter().skip(1);
    // A child that ended while this function ran is skipped: its time can no longer be read.
    let children: Duration = children.filter_map(|child| of_one(child).ok()).sum();
    Ok(of_one(id)? + children)
}

fn of_one(id: u32) -> Result<Duration> {
    let path = format!("/proc/{id}/stat");
    let text = fs::read_to_string(&path).context(|| format!("read {path}"))?;
    parse_stat(&text)
        .map(|(_, time)| time)
        .ok_or_else(|| Error::unreadable(&path, &text))
}

/// Returns the CPU time of the kernel's own threads that move frames: `ksoftirqd/*`, which takes over
/// delivery under load, and `vhost-*`, which serves virtio-net for QEMU on kernels before 6.4
/// (later ones count it in QEMU's process). Work done inside a process's system calls is not in
/// this figure; it is that process's time. Threads that this container cannot see are not counted.
#[must_use]
pub fn of_kernel_network() -> Duration {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let times = stats.filter_map(|text| {
        let (name, time) = parse_stat(&text)?;
        let ours = name.starts_with("ksoftirqd/") || name.starts_with("vhost-");
        ours.then_some(time)
    });
    times.sum()
}

/// Names and CPU time in `/proc/PID/stat` (proc_pid_stat(5)): the name is in parentheses and may
/// contain anything; `utime` and `stime` are fields 14 and 15.
fn parse_stat(text: &str) -> Option<(&str, Duration)> {
    let (_, rest) = text.split_once('(')?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let nanos = u128::from(user + system) * 1_000_000_000 / u128::from(ticks);
    Some((name, Duration::from_nanos(u64::try_from(nanos).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        let (name, time) = parse_stat(text).unwrap();
        assert_eq!(name, "a) b) (c");
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(time, Duration::from_millis(200 * 1000 / ticks));
    }

    #[test]
    fn our_own_time_grows() {
        let before = of_process(std::process::id()).unwrap();
        let end = std::time::Instant::now() + Duration::from_millis(60);
        while std::time::Instant::now() < end {}
        assert!(of_process(std::process::id()).unwrap() > before);
    }
}
