//! What ports may send and receive: from keys to [`Rules`].

use switch::guard::{MAX_VLAN, Rules, VlanRules};
use toml::Spanned;

use super::complaint::Mistake;
use super::file;

/// The VLAN of ports that name none, in a network where others do (IEEE 802.1Q, 9.6: the default
/// PVID).
const DEFAULT_VLAN: u16 = 1;

/// Whether any port of the network is in a VLAN: then all are.
pub(super) fn has_vlans(network: &file::Network) -> bool {
    let port = |port: &Spanned<file::Port>| {
        let port = port.get_ref();
        port.vlan.is_some() || port.trunk.is_some() || port.native_vlan.is_some()
    };
    let uplink = |uplink: &file::Uplink| uplink.trunk.is_some() || uplink.native_vlan.is_some();
    network.port.iter().any(port) || network.uplink.as_ref().is_some_and(uplink)
}

/// The rules of a port that is not listed.
pub(super) fn unlisted(vlans: bool) -> Rules {
    Rules {
        vlan: vlans.then(|| VlanRules::access(DEFAULT_VLAN)),
    }
}

/// The rules of a listed port.
pub(super) fn of_port(port: &file::Port, vlans: bool) -> Result<Rules, Mistake> {
    if let (Some(vlan), Some(trunk)) = (&port.vlan, &port.trunk) {
        let help = "an access port has `vlan`, a trunk has `trunk` and maybe `native-vlan`";
        let place =
            vlan.span().start.max(trunk.span().start)..vlan.span().end.max(trunk.span().end);
        return Err(Mistake::new(
            place,
            "`vlan` and `trunk` exclude each other",
            help,
        ));
    }
    if let (Some(native), None) = (&port.native_vlan, &port.trunk) {
        let help = "add `trunk = [...]`, or name the VLAN of an access port with `vlan`";
        return Err(Mistake::new(
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
        (None, None) => unlisted(vlans).vlan,
    };
    Ok(Rules { vlan })
}

/// The rules of an uplink: a trunk of all VLANs unless it says which.
pub(super) fn of_uplink(uplink: &file::Uplink, vlans: bool) -> Result<Rules, Mistake> {
    if !vlans {
        return Ok(Rules::default());
    }
    let native = uplink.native_vlan.as_ref().map(number).transpose()?;
    let vlan = match &uplink.trunk {
        Some(trunk) => VlanRules {
            untagged: native,
            tagged: ranges(trunk)?,
        },
        None => VlanRules {
            untagged: native.or(Some(DEFAULT_VLAN)),
            tagged: vec![(1, MAX_VLAN)],
        },
    };
    Ok(Rules { vlan: Some(vlan) })
}

fn number(vlan: &Spanned<i64>) -> Result<u16, Mistake> {
    let number = u16::try_from(*vlan.get_ref()).ok();
    let number = number.filter(|number| (1..=MAX_VLAN).contains(number));
    number.ok_or_else(|| {
        let message = format!("{} is no VLAN", vlan.get_ref());
        Mistake::new(vlan.span(), message, format!("VLANs are 1 to {MAX_VLAN}"))
    })
}

fn ranges(trunk: &Spanned<Vec<Spanned<file::Vlans>>>) -> Result<Vec<(u16, u16)>, Mistake> {
    if trunk.get_ref().is_empty() {
        let help = "name the VLANs whose frames have tags, as in [10, \"20-29\"]";
        return Err(Mistake::new(trunk.span(), "a trunk of no VLAN", help));
    }
    trunk.get_ref().iter().map(range).collect()
}

fn range(vlans: &Spanned<file::Vlans>) -> Result<(u16, u16), Mistake> {
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
        let message = format!("`{}` is no range of VLANs", text.escape_debug());
        return Err(Mistake::new(place, message, "write it like \"20-29\""));
    };
    Ok((at(from)?, at(to)?))
}
