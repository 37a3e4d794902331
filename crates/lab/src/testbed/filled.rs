//! Starts switches that reach the second host, switches whose FDB is filled, and switches with interrupt moderation.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::second_host::SecondHost;
use vm_harness::bridge::Bridge;
use vm_harness::channel::Setting;
use vm_harness::error::{Error, Result};
use vm_harness::switch::{Switch, Uplink};
use vm_harness::{host, interrupt};

/// How often frames are sent again if some were lost.
const FILLS: u32 = 8;

/// Values of `moderation-us`. The testbed has a switch for each.
const MODERATION_US: [&str; 3] = ["0", "200", "1000"];

/// Numbers of FDB entries. The testbed has a switch for each; the other switches have a handful of entries.
const RESIDENTS: [u32; 2] = [10_000, 100_000];

/// A switch whose FDB is filled. Only VM 1 has a port on it.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) fdb_entries: u32,
    pub(super) network: u8,
    pub(super) switch: Switch,
    site: Bridge,
}

/// Starts a switch for each number of FDB entries, as the networks from `first` on: entries age only after
/// minutes, so each number needs a switch of its own.
pub(super) fn all(setting: &Setting<'_>, remote: &SecondHost, first: u8) -> Result<Vec<Filled>> {
    let make = |(fdb_entries, network)| {
        let setting = Setting {
            vms: setting.vms.get(..1).unwrap_or_default(),
            ..setting.clone()
        };
        let (switch, site) = reachable(&setting, remote, network)?;
        Ok(Filled {
            fdb_entries,
            network,
            switch,
            site,
        })
    };
    RESIDENTS.into_iter().zip(first..).map(make).collect()
}

/// A switch with a value of `moderation-us`. VM 1 and VM 2 have ports on it.
#[derive(Debug)]
pub(super) struct ModeratedSwitch {
    pub(super) micros: &'static str,
    pub(super) network: u8,
    pub(super) switch: Switch,
}

/// Starts a switch for each value, as the networks from `first` on.
pub(super) fn moderated_switches(setting: &Setting<'_>, first: u8) -> Result<Vec<ModeratedSwitch>> {
    let make = |(micros, network): (&'static str, u8)| {
        let setting = Setting {
            vms: setting.vms.get(..2).unwrap_or_default(),
            ..setting.clone()
        };
        Ok(ModeratedSwitch {
            micros,
            network,
            switch: Switch::start_gathering(&setting, micros.parse().unwrap_or(0))?,
        })
    };
    MODERATION_US.into_iter().zip(first..).map(make).collect()
}

/// Starts a switch whose uplink leads to the second host, as the network of this number; returns it and the bridge
/// in between.
pub(super) fn reachable(
    setting: &Setting<'_>,
    remote: &SecondHost,
    network: u8,
) -> Result<(Switch, Bridge)> {
    let site = Bridge::new(setting.accel)?;
    let uplink = Uplink {
        namespace: site.namespace(),
        tap: "vic0",
    };
    let switch = Switch::start_with(setting, Some(&uplink))?;
    site.join(uplink.tap)?;
    remote.join(site.namespace(), network)?;
    Ok((switch, site))
}

impl Filled {
    /// Sends frames from this number of addresses, if the switch has not learned them.
    pub(super) fn fill(&self, vicinity: &Path) -> Result<()> {
        let ask = |words: &[&str]| {
            let mut command = host::command("ip");
            command.args(["netns", "exec", self.site.namespace()]);
            command.arg(vicinity).arg("--runtime-dir");
            command.arg(self.switch.folder()).args(words);
            host::run(command)
        };
        let known = || -> Result<u64> {
            let text = ask(&["network", "list", "--json"])?;
            let list: Value = serde_json::from_str(&text).unwrap_or_default();
            let count = list
                .pointer("/0/worker/fdb_entries")
                .and_then(Value::as_u64);
            count.ok_or_else(|| Error::unreadable("`vicinity network list --json`", &text))
        };
        // 100 addresses fewer are enough, because the VMs' own addresses are in the FDB too, and a full FDB learns no
        // more.
        let wanted = u64::from(self.fdb_entries).saturating_sub(100);
        for _ in 0..FILLS {
            if known()? >= wanted {
                return Ok(());
            }
            ask(&["lab", "fill-fdb", &format!("--count={wanted}")])?;
            // The data plane reports the figure once a second.
            interrupt::sleep(Duration::from_millis(1200))?;
        }
        let (wanted, known) = (self.fdb_entries, known()?);
        Err(Error::Host(format!(
            "the switch has {known} FDB entries, not {wanted}"
        )))
    }
}
