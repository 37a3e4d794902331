//! Membership of the message plane inside a guest: the gateway, and what it says about the region.

use std::time::Duration;

use report::message_perf::Row;
use vm_harness::error::{Error, Result};
use vm_harness::guest_module::GuestModule;
use vm_harness::vm::Vm;

use crate::guest::{sh, until};

/// Where the gateway writes what it says.
const LOG: &str = "/tmp/join.log";

/// The sockets of members of the board in a guest.
const BOARD: &str = "/run/vicinity/message";

/// The endpoint that answers in a guest.
pub(crate) const ENDPOINT: u32 = 7;

/// What a load takes in a guest, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loads {
    /// From the region.
    pub(crate) region_ns: u32,
    /// From other memory of the same program.
    pub(crate) private_ns: u32,
}

/// What the gateway said when it joined.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// What a load takes, if the gateway measured it.
    pub(crate) loads: Option<Loads>,
    /// Whether the gateway warned that the region is mapped uncached.
    pub(crate) is_uncached: bool,
}

/// Loads the module `vicinity_wake`, which maps the region write-back, unless it is loaded.
pub(crate) fn load_module(vm: &Vm) -> Result<()> {
    let name = GuestModule::Wake.name();
    sh(
        vm,
        &format!("grep -q ^{name} /proc/modules || insmod /lib/modules/{name}.ko"),
    )
    .map(drop)
}

/// Removes the module, if it is loaded.
pub(crate) fn unload_module(vm: &Vm) -> Result<()> {
    let name = GuestModule::Wake.name();
    sh(
        vm,
        &format!("! grep -q ^{name} /proc/modules || rmmod {name}"),
    )
    .map(drop)
}

/// Starts the gateway in a guest and returns what it says.
pub(crate) fn join(vm: &Vm) -> Result<Joined> {
    sh(vm, &format!("rm -f {BOARD}/gateway.sock {LOG}"))?;
    let _runs = vm.start(&format!("exec vicinity message join 2>{LOG}"))?;
    until(
        vm,
        &format!("test -S {BOARD}/gateway.sock && grep -q joined {LOG}"),
    )?;
    // The gateway writes all of its lines at once, and this command is another process.
    let text = sh(vm, &format!("sleep 0.2; cat {LOG}"))?;
    Ok(Joined {
        loads: loads(&text),
        is_uncached: text.contains("uncached"),
    })
}

/// Ends the gateway and what uses it.
pub(crate) fn leave(vm: &Vm) -> Result<()> {
    let gone = "! pgrep -x vicinity >/dev/null";
    sh(
        vm,
        &format!("pkill -x vicinity; until {gone}; do sleep 0.1; done"),
    )
    .map(drop)
}

/// Makes a guest a member, with the module if it has one, unless it is a member.
pub(crate) fn ensure_joined(vm: &Vm, with_module: bool) -> Result<()> {
    let joined = format!("test -S {BOARD}/gateway.sock && pgrep -x vicinity >/dev/null");
    if vm.run(&joined, crate::guest::LIMIT)?.status == 0 {
        return Ok(());
    }
    if with_module {
        load_module(vm)?;
    }
    join(vm).map(drop)
}

/// Starts the endpoint that answers in a guest, unless it runs.
pub(crate) fn ensure_answers(vm: &Vm) -> Result<()> {
    let socket = format!("test -S {BOARD}/endpoints/{ENDPOINT}.sock");
    let runs = format!("{socket} && pgrep -f '[m]essage answer' >/dev/null");
    if vm.run(&runs, crate::guest::LIMIT)?.status == 0 {
        return Ok(());
    }
    sh(vm, &format!("rm -f {BOARD}/endpoints/{ENDPOINT}.sock"))?;
    let answer = format!("exec vicinity message answer --endpoint {ENDPOINT} 2>/tmp/answer.log");
    let _runs = vm.start(&answer)?;
    until(vm, &socket)
}

/// Parses the gateway's line about loads.
fn loads(text: &str) -> Option<Loads> {
    let (_, rest) = text.split_once("a load from the region takes ")?;
    let (region, rest) = rest.split_once(" ns, ")?;
    let private = rest
        .split_once("from other memory ")?
        .1
        .split_once(" ns")?
        .0;
    Some(Loads {
        region_ns: region.parse().ok()?,
        private_ns: private.parse().ok()?,
    })
}

/// Longest time of the measurement of one length. It sends for about two seconds, and on a busy host each message
/// waits for the CPU of the other VM.
const MEASUREMENT: Duration = Duration::from_secs(100);

/// Returns the figures that `vicinity message perf` measures for each length.
pub(crate) fn perf(vm: &Vm, peer: &str, lengths: &[u32]) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for length in lengths {
        let command = format!("vicinity message perf {peer}:{ENDPOINT} --json --lengths {length}");
        let text = vm.check(&command, MEASUREMENT)?;
        let rows: Vec<Row> = serde_json::from_str(&text)
            .map_err(|_| Error::unreadable("the figures of `vicinity message perf`", &text))?;
        all.extend(rows);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_line_is_read() {
        let text = "joined as NIC 0123456789ab\n\
                    a load from the region takes 12 ns, one from other memory 9 ns\n";
        let wanted = Loads {
            region_ns: 12,
            private_ns: 9,
        };
        assert_eq!(loads(text), Some(wanted));
        assert_eq!(loads("joined as NIC 0123456789ab\n"), None);
    }
}
