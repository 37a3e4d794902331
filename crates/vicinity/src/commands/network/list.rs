//! `vicinity port list` and `vicinity network list`.

use std::path::Path;

use switch::control::Drops;
use switch::guard::Rules;

use crate::client::{self, ApiRequest};
use crate::commands::failure::Failure;
use crate::commands::output::as_json;
use crate::status::{Duplicate, Kind, NetworkStatus, PortStatus, State};
use crate::table::{self, Align};

/// Returns the ports of the daemon that serves `runtime_dir`, as a table or as JSON.
pub(crate) fn ports(runtime_dir: &Path, json: bool) -> Result<String, Failure> {
    let ports: Vec<PortStatus> = client::get(runtime_dir, "/v1/ports")?;
    if json {
        return Ok(as_json(&ports));
    }
    if ports.is_empty() {
        return Ok(
            "the daemon has no ports; `vicinity qemu-args VM` prints QEMU's options for one\n"
                .into(),
        );
    }
    let head = [
        ("VM", Align::Left),
        ("NETWORK", Align::Left),
        ("STATE", Align::Left),
        ("MAC", Align::Left),
        ("VLAN", Align::Left),
        ("FDB", Align::Right),
        ("SENT", Align::Right),
        ("", Align::Right),
        ("RECEIVED", Align::Right),
        ("", Align::Right),
        ("DROPS", Align::Right),
        ("", Align::Left),
        ("REASON", Align::Left),
    ];
    let rows: Vec<_> = ports.iter().map(port_row).collect();
    Ok(table::format(&head, &rows))
}

fn port_row(port: &PortStatus) -> Vec<String> {
    let counters = &port.counters;
    vec![
        match port.kind {
            Kind::Vm => port.vm.clone(),
            Kind::Uplink => format!("(uplink {})", port.vm),
        },
        port.network.clone(),
        match (port.state, port.quarantine_left_ms) {
            (State::Quarantined, Some(left)) => format!("quarantined {} s", left.div_ceil(1000)),
            (state, _) => state.word().to_owned(),
        },
        port.mac
            .map_or_else(|| "-".to_owned(), |mac| mac.to_string()),
        vlans(&port.rules),
        port.fdb_entries.to_string(),
        counters.tx_frames.to_string(),
        table::bytes(counters.tx_bytes),
        counters.rx_frames.to_string(),
        table::bytes(counters.rx_bytes),
        counters.drops.total().to_string(),
        reasons(&counters.drops),
        reason(port),
    ]
}

/// Returns the reason why a port does not work.
fn reason(port: &PortStatus) -> String {
    let duplicate = |duplicate: &Duplicate| {
        let Duplicate { mac, vm, .. } = duplicate;
        format!("{vm} uses {mac}, too; give each VM its own address")
    };
    let duplicates = port.duplicates.iter().map(duplicate);
    let reasons: Vec<_> = port.reason.clone().into_iter().chain(duplicates).collect();
    reasons.join("; ")
}

/// Returns the VLANs of a port: the untagged one, then the tagged ones.
fn vlans(rules: &Rules) -> String {
    let Some(vlans) = &rules.vlan else {
        return "-".to_owned();
    };
    let untagged = vlans
        .untagged
        .map_or("-".to_owned(), |vlan| vlan.to_string());
    let tagged = vlans.tagged.iter().map(|(from, to)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    });
    let tagged: Vec<_> = tagged.collect();
    match tagged.is_empty() {
        true => untagged,
        false => format!("{untagged}/{}", tagged.join(",")),
    }
}

/// Returns the reasons for which frames were dropped, the most frequent first.
fn reasons(drops: &Drops) -> String {
    let mut reasons: Vec<_> = drops.each().into_iter().collect();
    reasons.retain(|(_, count)| *count > 0);
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let reasons = reasons
        .iter()
        .map(|(reason, count)| format!("{} {count}", reason.replace('_', "-")));
    reasons.collect::<Vec<_>>().join(", ")
}

/// Returns the networks of the daemon that serves `runtime_dir`, as a table or as JSON.
pub(crate) fn networks(runtime_dir: &Path, json: bool) -> Result<String, Failure> {
    let networks: Vec<NetworkStatus> = client::get(runtime_dir, "/v1/networks")?;
    if json {
        return Ok(as_json(&networks));
    }
    let head = [
        ("NETWORK", Align::Left),
        ("STATE", Align::Left),
        ("PORTS", Align::Right),
        ("ATTACHED", Align::Right),
        ("FDB", Align::Right),
        ("UPLINK", Align::Left),
        ("RESTARTS", Align::Right),
        ("WAKE-UPS", Align::Right),
        ("FRAMES", Align::Right),
        ("TICKS/FRAME", Align::Right),
        ("REASON", Align::Left),
    ];
    let rows: Vec<_> = networks.iter().map(network_row).collect();
    Ok(table::format(&head, &rows))
}

fn network_row(network: &NetworkStatus) -> Vec<String> {
    let worker = &network.worker;
    let ticks = worker.busy_ticks.checked_div(worker.busy_frames);
    vec![
        network.name.clone(),
        if network.up { "up" } else { "down" }.to_owned(),
        network.ports.to_string(),
        network.attached.to_string(),
        worker.fdb_entries.to_string(),
        network.uplink.clone().unwrap_or_else(|| "-".to_owned()),
        network.restarts.to_string(),
        worker.wakeups.to_string(),
        worker.busy_frames.to_string(),
        ticks.map_or_else(|| "-".to_owned(), |ticks| ticks.to_string()),
        network.reason.clone().unwrap_or_default(),
    ]
}

/// Returns one port, with every figure, as JSON.
pub(crate) fn port(runtime_dir: &Path, network: &str, vm: &str) -> Result<String, Failure> {
    let ports: Vec<PortStatus> = client::get(runtime_dir, "/v1/ports")?;
    let here = |port: &&PortStatus| port.network == network;
    let found = ports.iter().filter(here).find(|port| port.vm == vm);
    match found {
        Some(port) => Ok(as_json(port)),
        None => {
            let names = ports.iter().filter(here).map(|port| port.vm.as_str());
            Err(Failure::missing(
                &format!("port of network {network}"),
                vm,
                names,
            ))
        }
    }
}

/// Returns one network, with every figure, as JSON.
pub(crate) fn network(runtime_dir: &Path, name: &str) -> Result<String, Failure> {
    let networks: Vec<NetworkStatus> = client::get(runtime_dir, "/v1/networks")?;
    match networks.iter().find(|network| network.name == name) {
        Some(network) => Ok(as_json(network)),
        None => {
            let names = networks.iter().map(|network| network.name.as_str());
            Err(Failure::missing("network", name, names))
        }
    }
}

/// Returns the daemon's figures in Prometheus' text format.
pub(crate) fn metrics(runtime_dir: &Path) -> Result<String, Failure> {
    let (_, text) = client::text(runtime_dir, ApiRequest::get("/metrics"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
