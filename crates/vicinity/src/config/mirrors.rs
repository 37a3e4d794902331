//! Mirror ports: which ports' frames the switch copies to which mirror port.

use switch::limits::MAX_MIRRORS;
use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;
use super::model::{Mirrored, Port};
use super::values::check_name;
use crate::name;

/// Stands for all ports. A name cannot contain this character.
const ALL: &str = "*";

/// Returns the ports whose frames the switch copies to this port.
pub(super) fn of_port(port: &file::Port) -> Result<Vec<Mirrored>, ValueError> {
    let Some(list) = &port.mirror else {
        return Ok(Vec::new());
    };
    if list.get_ref().is_empty() {
        let help = "list the ports whose frames it receives, or remove the key";
        return Err(ValueError::new(
            list.span(),
            "the mirror port mirrors no port",
            help,
        ));
    }
    let mirrored = |name: &Spanned<String>| {
        if name.get_ref() == ALL {
            return Ok(Mirrored::All);
        }
        check_name(name).map(|()| Mirrored::Port(name.get_ref().clone()))
    };
    list.get_ref().iter().map(mirrored).collect()
}

/// Checks that every mirrored port exists, is not a mirror port itself, and has at most
/// `MAX_MIRRORS` mirror ports.
pub(super) fn check(network: &file::Network, ports: &[Port]) -> Result<(), ValueError> {
    let mut counts = std::collections::HashMap::<&str, usize>::new();
    for port in &network.port {
        let names = port.get_ref().mirror.iter().flat_map(Spanned::get_ref);
        for name in names.filter(|name| name.get_ref() != ALL) {
            exists(name, network)?;
            let mirrors = |port: &&Port| port.vm == *name.get_ref() && !port.mirror.is_empty();
            if ports.iter().any(|port| mirrors(&port)) {
                let message = format!("`{}` is a mirror port, or this port itself", name.get_ref());
                let help = "the switch does not copy copies; mirror a port that has no `mirror`";
                return Err(ValueError::new(name.span(), message, help));
            }
            let count = counts.entry(name.get_ref()).or_default();
            *count += 1;
            if *count > MAX_MIRRORS {
                let message = format!("`{}` has too many mirror ports", name.get_ref());
                let help = format!(
                    "a port has at most {MAX_MIRRORS} mirror ports; use `vicinity capture` instead"
                );
                return Err(ValueError::new(name.span(), message, help));
            }
        }
    }
    Ok(())
}

fn exists(name: &Spanned<String>, network: &file::Network) -> Result<(), ValueError> {
    let listed = network.port.iter().map(|port| port.get_ref().vm.get_ref());
    let uplink = network
        .uplink
        .iter()
        .filter_map(|uplink| uplink.get_ref().name());
    let uplink = uplink.map(Spanned::get_ref);
    let known = || listed.clone().chain(uplink.clone()).map(String::as_str);
    // In a network that accepts unlisted ports, such a port may have any name.
    if network.accept || known().any(|known| known == name.get_ref()) {
        return Ok(());
    }
    let message = format!("the network has no port `{}`", name.get_ref());
    let hint = name::hint(name.get_ref(), known());
    let help = format!("list VMs of the network, its uplink, or \"{ALL}\" for all{hint}");
    Err(ValueError::new(name.span(), message, help))
}
