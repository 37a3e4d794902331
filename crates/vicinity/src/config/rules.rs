//! Converts the keys that say what ports may send and receive to [`Rules`].

use std::net::IpAddr;

use switch::guard::{MAX_VLAN, Prefix, Role, Rules, SourceRules, VlanRules};
use toml::Spanned;

use super::diagnostic::ValueError;
use super::values::individual;
use super::{file, limits};

/// The VLAN of ports without a `vlan` key in a network in which other ports have one (IEEE 802.1Q,
/// 9.6: the default PVID).
const DEFAULT_VLAN: u16 = 1;

/// Most allowed addresses of one kind per port. The switch compares each frame with all of them.
const MAX_ALLOWED: usize = 64;

/// The keys of a network that apply to all its ports.
#[derive(Clone, Copy)]
pub(super) struct Network<'f> {
    vlans: bool,
    limits: Option<&'f file::Limits>,
}

impl<'f> Network<'f> {
    pub(super) fn new(network: &'f file::Network) -> Self {
        Self {
            vlans: has_vlans(network),
            limits: network.limits.as_ref(),
        }
    }

    fn default_vlan(self) -> Option<VlanRules> {
        self.vlans.then(|| VlanRules::access(DEFAULT_VLAN))
    }
}

/// Returns whether any port of the network is in a VLAN. If so, all ports are.
fn has_vlans(network: &file::Network) -> bool {
    let port = |port: &Spanned<file::Port>| {
        let port = port.get_ref();
        port.vlan.is_some() || port.trunk.is_some() || port.native_vlan.is_some()
    };
    let uplink = |uplink: &Spanned<file::Uplink>| {
        let uplink = uplink.get_ref();
        uplink.trunk.is_some() || uplink.native_vlan.is_some()
    };
    network.port.iter().any(port) || network.uplink.as_ref().is_some_and(uplink)
}

/// Returns the rules of a port that is not listed.
pub(super) fn unlisted(network: Network<'_>) -> Result<Rules, ValueError> {
    Ok(Rules {
        vlan: network.default_vlan(),
        limits: limits::of(None, network.limits)?,
        ..Rules::default()
    })
}

/// Returns the rules of a listed port.
pub(super) fn of_port(port: &file::Port, network: Network<'_>) -> Result<Rules, ValueError> {
    if let (Some(vlan), Some(trunk)) = (&port.vlan, &port.trunk) {
        let help =
            "an access port has `vlan`; a trunk port has `trunk`, and optionally `native-vlan`";
        let place =
            vlan.span().start.max(trunk.span().start)..vlan.span().end.max(trunk.span().end);
        return Err(ValueError::new(
            place,
            "`vlan` and `trunk` exclude each other",
            help,
        ));
    }
    if let (Some(native), None) = (&port.native_vlan, &port.trunk) {
        let help = "add `trunk = [...]`, or name the VLAN of an access port with `vlan`";
        return Err(ValueError::new(
            native.span(),
            "`native-vlan` without `trunk`",
            help,
        ));
    }
    let vlan = match (&port.vlan, &port.trunk) {
        (Some(vlan), _) => Some(VlanRules::access(number(vlan)?)),
        (None, Some(trunk)) => Some(VlanRules {
            untagged: port.native_vlan.as_ref().map(number).transpose()?,
            tagged: ranges(trunk)?,
        }),
        (None, None) => network.default_vlan(),
    };
    Ok(Rules {
        vlan,
        source: source(port)?,
        role: port.role,
        limits: limits::of(port.limits.as_ref(), network.limits)?,
        multicast_router: port.multicast_router,
    })
}

/// Returns the rules of an uplink. Every port may send to the uplink. The uplink is a trunk of all
/// VLANs unless its keys list some.
pub(super) fn of_uplink(network: &file::Network) -> Result<Rules, ValueError> {
    let Some(uplink) = network.uplink.as_ref().map(Spanned::get_ref) else {
        return Ok(Rules::default());
    };
    let private = |port: &Spanned<file::Port>| port.get_ref().role == Role::Private;
    let role = match network.port.iter().any(private) {
        true => Role::Promiscuous,
        false => Role::Open,
    };
    let vlan = has_vlans(network).then(|| uplink_vlans(uplink));
    let vlan = vlan.transpose()?;
    Ok(Rules {
        vlan,
        role,
        limits: limits::of_uplink(uplink)?,
        ..Rules::default()
    })
}

fn uplink_vlans(uplink: &file::Uplink) -> Result<VlanRules, ValueError> {
    let native = uplink.native_vlan.as_ref().map(number).transpose()?;
    Ok(match &uplink.trunk {
        Some(trunk) => VlanRules {
            untagged: native,
            tagged: ranges(trunk)?,
        },
        None => VlanRules {
            untagged: native.or(Some(DEFAULT_VLAN)),
            tagged: vec![(1, MAX_VLAN)],
        },
    })
}

/// Returns the source addresses that a port may use. If its addresses are given, the port may offer
/// services only if its keys allow them.
fn source(port: &file::Port) -> Result<SourceRules, ValueError> {
    let given = port.allowed_macs.is_some() || port.allowed_ips.is_some();
    let listed = port.allowed_macs.as_ref().or(port.allowed_ips.as_ref());
    let lists = [&port.allowed_macs, &port.allowed_ips];
    for list in lists.into_iter().flatten() {
        if list.get_ref().is_empty() || list.get_ref().len() > MAX_ALLOWED {
            let message = format!("the list has {} addresses", list.get_ref().len());
            let help = format!("list 1 to {MAX_ALLOWED}, or remove the key to allow any address");
            return Err(ValueError::new(list.span(), message, help));
        }
    }
    let macs = match (&port.allowed_macs, &port.mac, listed) {
        (Some(macs), _, _) => macs
            .get_ref()
            .iter()
            .map(individual)
            .collect::<Result<_, _>>()?,
        (None, Some(mac), Some(_)) => vec![individual(mac)?],
        (None, None, Some(ips)) => {
            let help = "add `mac` or `allowed-macs`: an IP address is child to a MAC address by \
                        ARP and neighbour discovery";
            return Err(ValueError::new(
                ips.span(),
                "`allowed-ips` without a MAC address",
                help,
            ));
        }
        (None, _, None) => Vec::new(),
    };
    let ips = port.allowed_ips.as_ref().map(|ips| {
        let ips = ips.get_ref().iter().map(prefix);
        ips.collect::<Result<Vec<_>, _>>()
    });
    Ok(SourceRules {
        macs,
        ips: ips.transpose()?,
        router: port.router.unwrap_or(!given),
        dhcp_server: port.dhcp_server.unwrap_or(!given),
    })
}

fn prefix(text: &Spanned<String>) -> Result<Prefix, ValueError> {
    let read = || {
        let (address, bits) = match text.get_ref().split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text.get_ref().as_str(), None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Prefix { address, bits })
    };
    read().ok_or_else(|| {
        let message = format!("`{}` is not an IP address", text.get_ref().escape_debug());
        ValueError::new(
            text.span(),
            message,
            "write it like 10.0.0.5, 10.1.0.0/16 or fd00::5",
        )
    })
}

fn number(vlan: &Spanned<i64>) -> Result<u16, ValueError> {
    let number = u16::try_from(*vlan.get_ref()).ok();
    let number = number.filter(|number| (1..=MAX_VLAN).contains(number));
    number.ok_or_else(|| {
        let message = format!("{} is not a VLAN", vlan.get_ref());
        ValueError::new(vlan.span(), message, format!("VLANs are 1 to {MAX_VLAN}"))
    })
}

fn ranges(trunk: &Spanned<Vec<Spanned<file::Vlans>>>) -> Result<Vec<(u16, u16)>, ValueError> {
    if trunk.get_ref().is_empty() {
        let help = "list the VLANs whose frames have tags, as in [10, \"20-29\"]";
        return Err(ValueError::new(trunk.span(), "the trunk has no VLAN", help));
    }
    trunk.get_ref().iter().map(range).collect()
}

fn range(vlans: &Spanned<file::Vlans>) -> Result<(u16, u16), ValueError> {
    let place = vlans.span();
    let at = |vlan: i64| number(&Spanned::new(place.clone(), vlan));
    let text = match vlans.get_ref() {
        file::Vlans::One(vlan) => return at(*vlan).map(|vlan| (vlan, vlan)),
        file::Vlans::Range(text) => text,
    };
    let ends = text.split_once('-').and_then(|(from, to)| {
        let end = |text: &str| text.trim().parse::<i64>().ok();
        Some((end(from)?, end(to)?))
    });
    let Some((from, to)) = ends.filter(|(from, to)| from <= to) else {
        let message = format!("`{}` is not a range of VLANs", text.escape_debug());
        return Err(ValueError::new(place, message, "write it like \"20-29\""));
    };
    Ok((at(from)?, at(to)?))
}
