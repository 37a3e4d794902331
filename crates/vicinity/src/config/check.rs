//! Converts a configuration file as written to a valid [`Config`].

use std::path::{Path, PathBuf};

use switch::limits::{MAX_LOOK_UPS, MAX_MODERATION_DELAY_US, MAX_PORTS, MODERATION_DELAY_US};
use switch::steering::MAX_WORKERS;
use toml::Spanned;

use super::diagnostic::ValueError;
use super::model::{Config, MAX_NETWORKS, MAX_SOCKET_PATH, Network, Port, UplinkInterface};
use super::values::{Unique, absolute, check_name, individual, interface};
use super::{direct, file, members, mirrors, owner, rules, spaces, vsock, web};
use crate::runtime_paths::RUNTIME_DIR;

/// Checks the whole file.
pub(super) fn check(
    text: &str,
    file: file::File,
    runtime_dir: Option<&Path>,
) -> Result<Config, ValueError> {
    let runtime_dir = match (runtime_dir, file.runtime_dir) {
        (Some(path), _) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        (None, Some(path)) => absolute(&path)?,
        (None, None) => PathBuf::from(RUNTIME_DIR),
    };
    let plane = file.message.as_ref();
    let members = plane.map_or(Ok(Vec::new()), |plane| members::check(text, plane))?;
    let uplink = plane.and_then(|plane| plane.get_ref().uplink.as_ref());
    let message_uplink = uplink.map(members::uplink).transpose()?;
    let message_unix_group =
        plane.map_or(Ok(None), |plane| members::unix_group(plane.get_ref()))?;
    let groups = file.direct.as_ref();
    let groups = groups.map_or(Ok(Vec::new()), |direct| direct::check(text, direct))?;
    let space_budget = file.space_budget.as_ref().map(spaces::budget).transpose()?;
    let spaces = spaces::check(text, &file.space, space_budget)?;
    let vsocks = vsock::check(text, &file.vsock)?;
    let web = file.web.as_ref().map(web::check).transpose()?;
    let others = members.is_empty() && groups.is_empty() && spaces.is_empty() && vsocks.is_empty();
    if file.network.is_empty() && others {
        let help = "add a [[network]] table with a `name`";
        return Err(ValueError::new(
            0..0,
            "the configuration has no network, member, trust group, space or socket device",
            help,
        ));
    }
    if let Some(extra) = file.network.get(MAX_NETWORKS) {
        let message = format!("the configuration has more than {MAX_NETWORKS} networks");
        return Err(ValueError::new(
            extra.span(),
            message,
            "remove some networks",
        ));
    }
    let mut seen = UniqueValues::new(text);
    let networks = file
        .network
        .into_iter()
        .map(|network| seen.network(&runtime_dir, network))
        .collect::<Result<_, _>>()?;
    Ok(Config {
        runtime_dir,
        networks,
        members,
        message_unix_group,
        message_uplink,
        groups,
        space_budget,
        spaces,
        vsocks,
        web: web.unwrap_or_default(),
    })
}

/// Values that must be unique in the whole file.
struct UniqueValues<'t> {
    text: &'t str,
    networks: Unique<'t, String>,
    sockets: Unique<'t, PathBuf>,
    interfaces: Unique<'t, String>,
}

impl<'t> UniqueValues<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            networks: Unique::new(text, "network"),
            sockets: Unique::new(text, "socket"),
            interfaces: Unique::new(text, "interface"),
        }
    }

    fn network(
        &mut self,
        runtime_dir: &Path,
        network: Spanned<file::Network>,
    ) -> Result<Network, ValueError> {
        let place = network.span();
        let network = network.into_inner();
        check_name(&network.name)?;
        members::leaves_room(&network.name)?;
        self.networks
            .take(network.name.get_ref().clone(), network.name.span())?;
        let common = rules::Network::new(&network);
        let uplink_rules = rules::of_uplink(&network)?;
        let unlisted_rules = rules::unlisted(common)?;
        let uplink = network.uplink.as_ref();
        let uplink = uplink.map(|uplink| self.uplink(uplink)).transpose()?;
        if let Some(extra) = network.port.get(MAX_PORTS - usize::from(uplink.is_some())) {
            let message = format!("a network has at most {MAX_PORTS} ports, its uplink included");
            return Err(ValueError::new(
                extra.span(),
                message,
                "move some ports to another network",
            ));
        }
        if network.port.is_empty() && !network.accept {
            let help = "list a [[network.port]], or set `accept = true` to take every socket \
                        in the network's folder";
            return Err(ValueError::new(
                place,
                "the network has no port, and accepts no sockets",
                help,
            ));
        }
        let workers = network.workers.as_ref().map_or(Ok(1), workers)?;
        let moderation_us = moderation_us(network.moderation_us.as_ref())?;
        let fdb_lookups = network.fdb_lookups.as_ref().map(fdb_lookups).transpose()?;
        let name = network.name.get_ref().clone();
        let folder = runtime_dir.join(&name);
        let ports = self.ports(&folder, &network.port, common)?;
        mirrors::check(&network, &ports)?;
        Ok(Network {
            name,
            folder,
            accept: network.accept,
            workers,
            moderation_us,
            fdb_lookups,
            uplink,
            uplink_rules,
            unlisted_rules,
            snooping: network.multicast_snooping.unwrap_or(true),
            ports,
        })
    }

    fn uplink(&mut self, place: &Spanned<file::Uplink>) -> Result<UplinkInterface, ValueError> {
        let uplink = place.get_ref();
        let xdp = uplink.xdp == Some(true);
        let (out, name) = match (&uplink.tap, &uplink.interface) {
            (Some(name), None) if !xdp => (
                UplinkInterface::Tap(interface(name, "a tap")?.clone()),
                name,
            ),
            (None, Some(name)) => {
                let valid = interface(name, "an interface")?.clone();
                match xdp {
                    true => (UplinkInterface::Xdp(valid), name),
                    false => (UplinkInterface::Interface(valid), name),
                }
            }
            _ => {
                let message = "an uplink has either a `tap` or an `interface`, and `xdp` needs an `interface`";
                let help = "Vicinity creates a `tap` that does not exist; an `interface`, like \"eth1\", must \
                    exist";
                return Err(ValueError::new(place.span(), message, help));
            }
        };
        self.interfaces.take(out.name().to_owned(), name.span())?;
        Ok(out)
    }

    fn ports(
        &mut self,
        folder: &Path,
        ports: &[Spanned<file::Port>],
        network: rules::Network<'_>,
    ) -> Result<Vec<Port>, ValueError> {
        let mut vms = Unique::new(self.text, "VM");
        let mut macs = Unique::new(self.text, "MAC address");
        ports
            .iter()
            .map(|port| {
                let place = port.span();
                let port = port.get_ref();
                check_name(&port.vm)?;
                vms.take(port.vm.get_ref().clone(), port.vm.span())?;
                let mac = port.mac.as_ref().map(individual).transpose()?;
                if let (Some(mac), Some(text)) = (mac, &port.mac) {
                    macs.take(mac, text.span())?;
                }
                let (socket, place) = match &port.socket {
                    Some(socket) => (absolute(socket)?, socket.span()),
                    None => (folder.join(format!("{}.sock", port.vm.get_ref())), place),
                };
                if socket.as_os_str().len() > MAX_SOCKET_PATH {
                    let message = format!("the path {} is too long", socket.display());
                    let help = format!("a socket's path has at most {MAX_SOCKET_PATH} bytes");
                    return Err(ValueError::new(place, message, help));
                }
                self.sockets.take(socket.clone(), place)?;
                let rules = rules::of_port(port, network)?;
                Ok(Port {
                    mirror: mirrors::of_port(port)?,
                    vm: port.vm.get_ref().clone(),
                    mac,
                    socket,
                    mode: port.mode,
                    rules,
                    owner: owner::check(owner::OwnerKeys {
                        user: port.owner.as_ref(),
                        label: port.owner_label.as_ref(),
                        cgroup: port.owner_cgroup.as_ref(),
                    })?,
                })
            })
            .collect()
    }
}

fn moderation_us(micros: Option<&Spanned<i64>>) -> Result<u32, ValueError> {
    let Some(micros) = micros else {
        return Ok(MODERATION_DELAY_US);
    };
    let fitting = u32::try_from(*micros.get_ref()).ok();
    let fitting = fitting.filter(|micros| *micros <= MAX_MODERATION_DELAY_US);
    fitting.ok_or_else(|| {
        let message = format!(
            "interrupt moderation cannot delay frames by {} µs",
            micros.get_ref()
        );
        let help = format!(
            "write 0 (never) to {MAX_MODERATION_DELAY_US}; the default is {MODERATION_DELAY_US}"
        );
        ValueError::new(micros.span(), message, help)
    })
}

fn fdb_lookups(times: &Spanned<i64>) -> Result<u32, ValueError> {
    let fitting = u32::try_from(*times.get_ref()).ok();
    let fitting = fitting.filter(|times| (1..=MAX_LOOK_UPS).contains(times));
    fitting.ok_or_else(|| {
        let message = format!(
            "the switch cannot make {} FDB look-ups for each frame",
            times.get_ref()
        );
        let help = format!(
            "write 1 to {MAX_LOOK_UPS}; without the key, the switch makes only the look-ups that \
        it needs"
        );
        ValueError::new(times.span(), message, help)
    })
}

fn workers(count: &Spanned<i64>) -> Result<usize, ValueError> {
    let valid = usize::try_from(*count.get_ref()).ok();
    let valid = valid.filter(|count| (1..=MAX_WORKERS).contains(count));
    valid.ok_or_else(|| {
        let message = format!("a network cannot have {} workers", count.get_ref());
        let help =
            format!("write 1 to {MAX_WORKERS}, at most the number of CPUs that the host can spare");
        ValueError::new(count.span(), message, help)
    })
}
