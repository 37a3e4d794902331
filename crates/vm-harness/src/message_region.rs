//! How a guest's kernel maps the region of the message plane, and how often an idle gateway in a guest wakes up.
//!
//! KVM on AMD processors obeys the memory type with which the guest's kernel maps the region, and TCG does not, but
//! the guest's kernel reports the type in both cases.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::vm::Vm;

/// Longest time that a command may take in a guest of a busy host.
const LIMIT: Duration = Duration::from_secs(120);

/// Prints the path below `/proc` of the gateway's process; fails if there is none.
pub const GATEWAY: &str =
    "grep --no-messages --files-with-matches --line-regexp vicinity /proc/[0-9]*/comm";

/// The region as a guest's kernel has mapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Physical address of the region in the guest.
    pub address: u64,
    /// Memory types of the mapped parts, as `pat_memtype_list` in debugfs names them, each one once and sorted.
    pub memory_types: Vec<String>,
}

impl Mapping {
    /// Reads the mapping in a guest in which a gateway runs. A guest may have other devices of the same kind, so the
    /// gateway's own mapping tells which device has the region.
    ///
    /// # Errors
    /// No gateway runs in the guest, or the output cannot be read.
    pub fn of(vm: &Vm) -> Result<Self> {
        let files = r"'/sys/devices/[^ ]*/\(resource2\|memory\)$'";
        let mapped = format!(
            "grep --no-filename --no-messages --only-matching {files} /proc/[0-9]*/maps | head -n 1"
        );
        let bar = vm.check(
            &format!("head -n 3 $(dirname $({mapped}))/resource | tail -n 1"),
            LIMIT,
        )?;
        let unreadable = || Error::unreadable("the region's address", &bar);
        let [address, end] = range(&bar).ok_or_else(unreadable)?;
        let debug = "/sys/kernel/debug";
        let list = vm.check(
            &format!(
                "mountpoint --quiet {debug} || mount -t debugfs none {debug}; cat {debug}/x86/pat_memtype_list"
            ),
            LIMIT,
        )?;
        Ok(Self {
            address,
            memory_types: types(&list, address, end),
        })
    }
}

/// Returns the memory types of the list's ranges that begin from `start` to `end`.
fn types(list: &str, start: u64, end: u64) -> Vec<String> {
    let inside = |line: &&str| range(line).is_some_and(|[at, _]| (start..=end).contains(&at));
    let kind = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
    let mut kinds: Vec<String> = list.lines().filter(inside).map(kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Parses the first two numbers of a line such as `PAT: [mem 0x1000-0x2000] write-back`, or `0x1000 0x1fff 0x0`.
fn range(line: &str) -> Option<[u64; 2]> {
    let mut numbers = line.split("0x").skip(1).map(|rest| {
        let digits = rest.split(|it: char| !it.is_ascii_hexdigit()).next();
        u64::from_str_radix(digits.unwrap_or_default(), 16).ok()
    });
    Some([numbers.next()??, numbers.next()??])
}

/// Returns how often the gateway in an idle guest woke up in five seconds. Two seconds pass before, because a gateway
/// looks for messages more often just after traffic.
///
/// # Errors
/// No gateway runs in the guest, or the output cannot be read.
pub fn gateway_wakeups(vm: &Vm) -> Result<u64> {
    let count = format!("grep --no-filename ^voluntary $(dirname $({GATEWAY}))/task/*/status");
    let text = vm.check(&format!("sleep 2; {count}; echo; sleep 5; {count}"), LIMIT)?;
    let unreadable = || Error::unreadable("the gateway's context switches", &text);
    let (before, after) = text.split_once("\n\n").ok_or_else(unreadable)?;
    let sum = |text: &str| {
        let of_line = |line: &str| line.rsplit('\t').next()?.parse::<u64>().ok();
        text.trim().lines().map(of_line).sum::<Option<u64>>()
    };
    let counts = sum(before).zip(sum(after)).ok_or_else(unreadable)?;
    Ok(counts.1.saturating_sub(counts.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_region_alone() {
        let list = "PAT memtype list:\n\
                    PAT: [mem 0x0000000000001000-0x0000000000002000] uncached-minus\n\
                    PAT: [mem 0x0000000380000000-0x0000000380001000] write-back\n\
                    PAT: [mem 0x0000000380001000-0x0000000388000000] write-back\n";
        let bar = "0x0000000380000000 0x0000000387ffffff 0x000000000014220c\n";
        let [start, end] = range(bar).unwrap();
        assert_eq!((start, end), (0x3_8000_0000, 0x3_87ff_ffff));
        assert_eq!(types(list, start, end), ["write-back"]);
        assert_eq!(range("PAT memtype list:"), None);
    }
}
