//! Computes the routes that should exist.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

/// An address of this VM, with the network that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) address: IpAddr,
    /// Length of the network's prefix.
    pub(crate) prefix: u8,
}

/// A route to a peer's address by the direct device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) to: IpAddr,
    /// The source address of new connections: this VM's address in the same network.
    pub(crate) from: IpAddr,
}

/// Returns the routes to the peers in `there`, each with the peer's Ethernet address. `said` has the
/// addresses that the peers sent.
pub(crate) fn plan(
    own: &[Own],
    there: &BTreeSet<Mac>,
    said: &BTreeMap<Mac, Vec<IpAddr>>,
) -> BTreeMap<Route, Mac> {
    let peers = there.iter().filter_map(|mac| said.get_key_value(mac));
    let addresses = peers.flat_map(|(mac, all)| all.iter().map(|to| (*to, *mac)));
    addresses
        .filter_map(|(to, mac)| Some((route(own, to)?, mac)))
        .collect()
}

/// Returns the route to an address, if it is in a network that this VM is in, too.
fn route(own: &[Own], to: IpAddr) -> Option<Route> {
    if own.iter().any(|own| own.address == to) {
        return None;
    }
    let near = own.iter().filter(|own| own.is_near(to));
    let own = near.max_by_key(|own| own.prefix)?;
    let from = own.address;
    Some(Route { to, from })
}

impl Own {
    fn is_near(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same(
                own.to_bits().into(),
                other.to_bits().into(),
                32,
                self.prefix,
            ),
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same(own.to_bits(), other.to_bits(), 128, self.prefix)
            }
            _ => false,
        }
    }
}

/// Returns whether the first `prefix` of `bits` bits are equal. Returns false for a prefix of 0, which
/// would match all addresses.
fn same(one: u128, other: u128, bits: u32, prefix: u8) -> bool {
    let rest = bits.checked_sub(prefix.into());
    let differ = rest.and_then(|rest| (one ^ other).checked_shr(rest));
    prefix > 0 && differ == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn own(text: &str, prefix: u8) -> Own {
        let address = text.parse().unwrap();
        Own { address, prefix }
    }

    fn routes(own: &[Own], said: &[(Mac, &[&str])]) -> Vec<String> {
        let said = said.iter().map(|(mac, all)| {
            let all = all.iter().map(|text| text.parse().unwrap()).collect();
            (*mac, all)
        });
        let plan = plan(own, &BTreeSet::from([A]), &said.collect());
        let text = plan.iter();
        text.map(|(route, mac)| format!("{} from {} {}", route.to, route.from, mac[5]))
            .collect()
    }

    #[test]
    fn peers_that_are_there_are_reached_from_the_address_in_their_network() {
        let own = [own("10.0.0.1", 8), own("10.1.0.1", 16), own("fd00::1", 64)];
        let said: &[(Mac, &[&str])] = &[
            (A, &["10.1.0.7", "10.9.0.7", "fd00::7", "fd00:1::7"]),
            (B, &["10.1.0.8"]),
        ];
        let want = [
            "10.1.0.7 from 10.1.0.1 1",
            "10.9.0.7 from 10.0.0.1 1",
            "fd00::7 from fd00::1 1",
        ];
        assert_eq!(routes(&own, said), want);
    }

    #[test]
    fn what_every_vm_has_for_itself_is_no_peers() {
        let docker = "172.17.0.1";
        assert!(routes(&[own("10.0.0.1", 24)], &[(A, &[docker])]).is_empty());
        assert!(routes(&[own(docker, 16)], &[(A, &[docker])]).is_empty());
        assert!(routes(&[own("10.0.0.1", 0)], &[(A, &["11.0.0.1"])]).is_empty());
        assert!(routes(&[own("10.0.0.1", 32)], &[(A, &["10.0.0.2"])]).is_empty());
        assert!(routes(&[own("10.0.0.1", 200)], &[(A, &["10.0.0.2"])]).is_empty());
    }
}
