//! Profiles a guest's kernel with the kernel's own profiler.
//!
//! A guest that is booted with `profile=4` counts, at each tick of its timer, the place where its kernel was
//! interrupted. There is one counter for each 16 bytes of kernel text, in `/proc/profile` (the kernel's
//! `kernel/profile.c`). This needs neither KVM nor performance counters. Code that runs with interrupts disabled is
//! counted at the place that enables them; code outside the kernel's text, mainly drivers as modules, is in the last
//! counter.

use std::collections::BTreeMap;
use std::time::Duration;

use super::flow::Flow;
use super::pace::Pace;
use crate::sample::{Cell, Values, values};
use crate::testbed::Testbed;
use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::vm::Vm;

/// Shortest profile in seconds: the guest's timer has 250 ticks a second.
const LEAST_SECONDS: u32 = 4;

/// Number of functions that are named in the samples.
const NAMED: usize = 12;

const LIMIT: Duration = Duration::from_secs(60);

/// Measures a TCP stream over the switch, and profiles the sender during the stream.
pub(super) fn measure(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let _pinned = testbed.pin("separate")?;
    let target = channel::address(testbed.network("switch")?, 2);
    let flow = Flow {
        target: &target,
        udp: false,
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds.max(LEAST_SECONDS),
    };
    let sender = testbed.vm(1)?;
    let symbols = symbols(sender)?;
    // Any write sets all counters to zero.
    sender.check("echo > /proc/profile", LIMIT)?;
    let flown = flow.run(sender)?;
    let counters = sender.check("od -A d -t u4 /proc/profile", LIMIT)?;
    let functions = functions(&counters, &symbols)
        .ok_or_else(|| Error::unreadable("the guest's /proc/profile", &counters))?;
    let mut found = shares(&functions);
    found.extend(values(&[("mbit_s", flown.mbit_s)]));
    Ok(found)
}

/// Returns the offsets of the kernel's functions from the beginning of its text, in order.
fn symbols(vm: &Vm) -> Result<Vec<(u64, String)>> {
    let text = vm.check("grep -v '\\[' /proc/kallsyms | grep -i ' [tw] '", LIMIT)?;
    parse_symbols(&text).ok_or_else(|| Error::unreadable("the guest's /proc/kallsyms", &text))
}

fn parse_symbols(text: &str) -> Option<Vec<(u64, String)>> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let at = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((at, words.nth(1)?.to_owned()))
    };
    let all: Vec<(u64, String)> = text.lines().filter_map(line).collect();
    let begin = all.iter().find(|(_, name)| name == "_stext")?.0;
    let mut symbols: Vec<(u64, String)> = all
        .into_iter()
        .filter_map(|(at, name)| Some((at.checked_sub(begin)?, name)))
        .collect();
    symbols.sort_by_key(|(at, _)| *at);
    Some(symbols)
}

/// Returns the number of ticks by function. `counters` is the output of `od`: the first number is the number of bytes
/// of kernel text for each counter, the others are the counters; `od` leaves out repeated rows, which are rows of
/// zeroes.
fn functions(counters: &str, symbols: &[(u64, String)]) -> Option<BTreeMap<String, u64>> {
    let mut hits: Vec<(u64, u64)> = Vec::new();
    let mut total = 0;
    for line in counters.lines().filter(|line| *line != "*") {
        let mut words = line.split_whitespace();
        let at: u64 = words.next()?.parse().ok()?;
        total = at / 4;
        for (place, word) in (total..).zip(words) {
            hits.push((place, word.parse().ok()?));
        }
    }
    let mut hits = hits.into_iter();
    let (_, step) = hits.next().filter(|(place, _)| *place == 0)?;
    let last = total.checked_sub(1)?;
    let mut found = BTreeMap::new();
    for (place, count) in hits.filter(|(_, count)| *count > 0) {
        let name = match place == last {
            true => OUTSIDE,
            false => {
                let offset = (place - 1).checked_mul(step)? + step / 2;
                let after = symbols.partition_point(|(at, _)| *at <= offset);
                let found = after.checked_sub(1).and_then(|at| symbols.get(at));
                found.map_or("?", |(_, name)| name.as_str())
            }
        };
        *found.entry(name.to_owned()).or_default() += count;
    }
    Some(found)
}

/// The counter of code outside the kernel's own text.
const OUTSIDE: &str = "modules";

/// Beginnings of the names of functions that copy a message's bytes.
const COPY: [&str; 7] = [
    "copy_user",
    "_copy_from",
    "_copy_to",
    "copy_page_",
    "memcpy",
    "__memcpy",
    "skb_copy",
];

/// Beginnings of the names of functions that are called for each message, whatever its length: those of the system
/// call, the socket and the memory of the message.
const MESSAGE: [&str; 17] = [
    "__alloc",
    "alloc",
    "__check_object",
    "__kmalloc",
    "kmalloc",
    "kmem_cache",
    "kfree",
    "__kmem",
    "entry_",
    "syscall_",
    "do_syscall",
    "ksys_",
    "vfs_",
    "sock_",
    "tcp_sendmsg",
    "lock_sock",
    "release_sock",
];

/// Functions in which an idle CPU halts and is counted.
const IDLE: [&str; 6] = [
    "default_idle",
    "native_safe_halt",
    "native_halt",
    "acpi_safe_halt",
    "cpu_idle",
    "do_idle",
];

/// Returns the percentages of a busy kernel's ticks, by kind of work.
#[expect(clippy::cast_precision_loss, reason = "ticks of a timer")]
fn shares(functions: &BTreeMap<String, u64>) -> Values {
    let begins = |name: &str, list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    let mut busy: Vec<(&String, u64)> = functions
        .iter()
        .filter(|(name, _)| !begins(name, &IDLE))
        .map(|(name, count)| (name, *count))
        .collect();
    let all: u64 = busy.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return Values::new();
    }
    let percent = |count: u64| count as f64 * 100.0 / all as f64;
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let found = busy.iter().filter(|(name, _)| wanted(name));
        percent(found.map(|(_, count)| count).sum())
    };
    let mut values = values(&[
        ("copy_pct", of(&|name| begins(name, &COPY))),
        ("message_pct", of(&|name| begins(name, &MESSAGE))),
        ("driver_pct", of(&|name| name == OUTSIDE)),
        ("hits", all as f64),
    ]);
    busy.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (name, count) in busy.into_iter().take(NAMED) {
        values.insert(format!("fn_{name}_pct"), percent(count));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000020 t default_idle
ffffffff81000040 T copy_user_generic_string
ffffffff81000060 W __kmalloc
0000000000000000 t before
";

    #[test]
    fn ticks_are_given_to_the_functions_around_them() {
        let symbols = parse_symbols(KALLSYMS).unwrap();
        assert_eq!(symbols.len(), 4, "what is below the text is left out");
        // A counter is for 16 bytes: counters 0 and 1 belong to `_stext`, 2 and 3 to the idle loop, and so on.
        let od =
            "0000000 16 0 0 5\n0000016 7 30 0 10\n0000032 0 0 0 0\n*\n0000064 0 0 0 8\n0000080\n";
        let functions = functions(od, &symbols).unwrap();
        let of = |name: &str| functions.get(name).copied();
        assert_eq!(of("default_idle"), Some(12));
        assert_eq!(of("copy_user_generic_string"), Some(30));
        assert_eq!(of("__kmalloc"), Some(10));
        assert_eq!(of(OUTSIDE), Some(8));
        let shares = shares(&functions);
        assert!((shares["hits"] - 48.0).abs() < 1e-9, "{shares:?}");
        assert!((shares["copy_pct"] - 62.5).abs() < 1e-9);
        assert!((shares["message_pct"] - 100.0 * 10.0 / 48.0).abs() < 1e-9);
        assert!((shares["fn___kmalloc_pct"] - shares["message_pct"]).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        assert_eq!(functions("od: /proc/profile: No such file\n", &[]), None);
        assert_eq!(functions("", &[]), None);
        assert_eq!(parse_symbols("0 T nothing\n"), None);
    }
}
