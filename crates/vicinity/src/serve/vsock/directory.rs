//! The directory that a VM's `vicinity-agent` reads from port 1014 of the host: which IPv4 addresses the VMs of its
//! groups have, and to which of their TCP ports it may connect.
//!
//! An address is a VM's own if a port of the VM allows it, and no other port of the network. Only such addresses are
//! told: for others, the switch would not vouch either. Each one is told only to VMs that could reach it by Ethernet.
//! The host reads nothing from the VM. The format is that of `guest/agent/src/sockets/directory.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use switch::guard::{LimitRules, RateRules, Role, Rules};
use vsock::policy;

use crate::config::{Config, Network, Vsock};

/// Most addresses of one VM, most ranges of ports of one VM, and most ports.
const MAX_ADDRESSES: usize = 16;
const MAX_RANGES: usize = 16;
const MAX_PORTS: usize = 256;

/// Most bytes of a directory. It must fit into the buffer of a socket, because nothing waits for the VM to read it.
const MAX_BYTES: usize = 96 << 10;

/// An address of a VM.
#[derive(Debug)]
struct Address {
    /// Its number among the addresses of its VM.
    index: usize,
    /// A number for the network and the VLAN.
    network: usize,
    role: Role,
    address: Ipv4Addr,
}

/// Returns the directory of each VM with a socket device, by its name.
pub(in crate::serve) fn all(config: &Config) -> BTreeMap<String, String> {
    let addresses: BTreeMap<&str, Vec<Address>> = config
        .vsocks
        .iter()
        .map(|vsock| (vsock.vm.as_str(), addresses(config, &vsock.vm)))
        .collect();
    let of = |vsock: &Vsock| (vsock.vm.clone(), directory(config, vsock, &addresses));
    config.vsocks.iter().map(of).collect()
}

/// Returns a socket from which the text can be read. Never waits.
///
/// # Errors
/// This process is out of descriptors, or the text does not fit into the socket.
pub(super) fn serve(text: &str) -> io::Result<OwnedFd> {
    let (mut host, guest) = UnixStream::pair()?;
    host.set_nonblocking(true)?;
    guest.set_nonblocking(true)?;
    host.write_all(text.as_bytes())?;
    Ok(guest.into())
}

fn directory(config: &Config, own: &Vsock, addresses: &BTreeMap<&str, Vec<Address>>) -> String {
    let none = Vec::new();
    let of = |vsock: &Vsock| addresses.get(vsock.vm.as_str()).unwrap_or(&none);
    let mine = of(own);
    let meets = |vsock: &Vsock, other: &Address| {
        vsock.vm == own.vm
            || mine
                .iter()
                .any(|mine| mine.network == other.network && mine.role.meets(other.role))
    };
    let peers = config.vsocks.iter();
    let peers = peers.filter(|other| other.vm == own.vm || own.rules.shares_group(&other.rules));
    let told: Vec<(&Vsock, &Address)> = peers
        .flat_map(|vsock| of(vsock).iter().map(move |address| (vsock, address)))
        .filter(|(vsock, address)| meets(vsock, address))
        .collect();
    let mut text = format!("vicinity-sockets 1\nself {}\n", own.cid);
    for (vsock, address) in &told {
        // The same address in two networks is two VMs', and the VM could mean either.
        let same = told.iter();
        let same = same.filter(|(_, other)| other.address == address.address);
        if same.count() == 1 && text.len() < MAX_BYTES {
            line(&mut text, vsock, address);
        }
    }
    text.push_str("end\n");
    text
}

fn line(text: &mut String, vsock: &Vsock, address: &Address) {
    let Address {
        index,
        network,
        address,
        ..
    } = address;
    // Writing to a string does not fail.
    let _written = write!(text, "address {} {index} {network} {address}", vsock.cid);
    let mut count = 0;
    let ranges = vsock.rules.ports.iter().flatten().take(MAX_RANGES);
    for range in ranges {
        let (Ok(first), Ok(last)) = (
            u16::try_from(*range.start()),
            u16::try_from((*range.end()).min(policy::MAX_TCP_PORT)),
        ) else {
            continue;
        };
        count += usize::from(last - first) + 1;
        if count <= MAX_PORTS {
            let _written = write!(text, " {first}-{last}");
        }
    }
    text.push('\n');
}

/// Returns the addresses that are this VM's own.
fn addresses(config: &Config, vm: &str) -> Vec<Address> {
    let networks = config.networks.iter().enumerate();
    let found = networks.flat_map(|(number, network)| own_of(network, vm, number));
    let numbered = found.enumerate().take(MAX_ADDRESSES);
    numbered
        .map(|(index, address)| Address { index, ..address })
        .collect()
}

fn own_of(network: &Network, vm: &str, number: usize) -> Vec<Address> {
    let mut found = Vec::new();
    for port in network.ports.iter().filter(|port| port.vm == vm) {
        let Some(vlan) = access_vlan(&port.rules) else {
            continue;
        };
        // AF_VSOCK would exceed the port's rates.
        let LimitRules { send, receive, .. } = port.rules.limits;
        if [send, receive] != [RateRules::default(); 2] {
            continue;
        }
        for address in individual(&port.rules) {
            let mut others = network.ports.iter().filter(|other| other.vm != vm);
            if !others.any(|other| individual(&other.rules).contains(&address)) {
                found.push(Address {
                    index: 0,
                    network: number * 4096 + usize::from(vlan),
                    role: port.rules.role,
                    address,
                });
            }
        }
    }
    found
}

/// Returns the VLAN of an access port, 0 in a network without VLANs, and nothing for a trunk.
fn access_vlan(rules: &Rules) -> Option<u16> {
    match &rules.vlan {
        None => Some(0),
        Some(vlan) if vlan.tagged.is_empty() => vlan.untagged,
        Some(_) => None,
    }
}

/// Returns the IPv4 addresses that a port may use, without ranges.
fn individual(rules: &Rules) -> BTreeSet<Ipv4Addr> {
    let prefixes = rules.source.ips.iter().flatten();
    let individual = prefixes.filter_map(|prefix| match prefix.address {
        IpAddr::V4(address) if prefix.bits == 32 => Some(address),
        _ => None,
    });
    individual.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::*;
    use crate::config::of_text;

    fn port(vm: &str, number: u8, more: &str) -> String {
        format!(
            "[[network.port]]\nvm = \"{vm}\"\nmac = \"52:54:00:00:00:0{number}\"\n\
             allowed-ips = [\"10.0.0.{number}\"]\n{more}\n"
        )
    }

    const VSOCKS: &str = "
[[vsock]]
vm = \"web\"
cid = 3
groups = [\"shop\"]
ports = []
[[vsock]]
vm = \"db\"
cid = 4
groups = [\"shop\"]
ports = [22, \"5000-5010\", 70000]
[[vsock]]
vm = \"other\"
cid = 5
groups = [\"store\"]
ports = [80]
";

    fn told(networks: &str, vm: &str) -> Vec<String> {
        let text = format!("{networks}{VSOCKS}");
        let all = all(&of_text(&text, Path::new("/run/vicinity")).unwrap());
        let text = all[vm].clone();
        let lines = text.strip_prefix("vicinity-sockets 1\nself ").unwrap();
        let lines = lines.strip_suffix("end\n").unwrap().lines().skip(1);
        lines.map(str::to_owned).collect()
    }

    fn lan(web: &str, db: &str, more: &str) -> String {
        let ports = [port("web", 3, web), port("db", 4, db), port("other", 5, "")];
        format!("[[network]]\nname = \"lan\"\n{}{more}", ports.concat())
    }

    const WEB: &str = "address 3 0 0 10.0.0.3";
    const DB: &str = "address 4 0 0 10.0.0.4 22-22 5000-5010";

    #[test]
    fn a_vm_is_told_its_own_addresses_and_those_of_its_groups() {
        let lan = lan("", "", "");
        assert_eq!(told(&lan, "web"), [WEB, DB]);
        assert_eq!(told(&lan, "db"), [WEB, DB]);
        assert_eq!(told(&lan, "other"), ["address 5 0 0 10.0.0.5 80-80"]);
    }

    #[test]
    fn what_the_switch_would_not_carry_is_not_told() {
        let without_db = |lan: &str, why: &str| assert_eq!(told(lan, "web"), [WEB], "{why}");
        let role = "role = \"private\"";
        without_db(&lan(role, role, ""), "private ports do not meet");
        without_db(
            &lan("", "limits.send.rate = \"100 Mbit/s\"", ""),
            "a rate limit",
        );
        let twin = "[[network.port]]\nvm = \"twin\"\nmac = \"52:54:00:00:00:09\"\nallowed-ips = [\"10.0.0.4\"]\n";
        without_db(&lan("", "", twin), "another port may use the address");
        let unguarded = lan("", "", "").replace("allowed-ips = [\"10.0.0.4\"]", "");
        without_db(&unguarded, "the port may use any address");
        let range = lan("", "", "").replace("10.0.0.4", "10.0.0.4/31");
        without_db(&range, "a range is not an address");
        let tagged = told(&lan("vlan = 1", "vlan = 2", ""), "web");
        assert_eq!(tagged, ["address 3 0 1 10.0.0.3"], "another VLAN");
    }

    #[test]
    fn an_address_of_two_networks_is_not_told() {
        let second = lan("", "", "").replace("\"lan\"", "\"san\"");
        let second = second
            .replace("00:00:0", "00:01:0")
            .replace("10.0.0.3", "10.1.0.3");
        let both = lan("", "", "") + &second;
        assert_eq!(told(&both, "web"), [WEB, "address 3 1 4096 10.1.0.3"]);
    }

    #[test]
    fn many_ports_are_cut() {
        let wide = VSOCKS.replace("[80]", "[80, \"1000-2000\", 90]");
        let text = format!("{}{wide}", lan("", "", ""));
        let all = all(&of_text(&text, Path::new("/run/vicinity")).unwrap());
        assert!(
            all["other"].contains("10.0.0.5 80-80\n"),
            "{}",
            all["other"]
        );
    }

    #[test]
    fn the_largest_directory_can_be_served() {
        let text = "x".repeat(MAX_BYTES + 300);
        let mut socket = UnixStream::from(serve(&text).unwrap());
        let mut got = String::new();
        socket.set_nonblocking(false).unwrap();
        socket.read_to_string(&mut got).unwrap();
        assert_eq!(got, text);
    }
}
