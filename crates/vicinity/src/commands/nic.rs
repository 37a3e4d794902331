//! A VM's NIC as configured, from which the options of its QEMU are made.

use std::path::{Path, PathBuf};

use switch::mac::Mac;

use super::failure::Failure;
use crate::config::{self, Config, MAX_SOCKET_PATH, Mode, Network};
use crate::runtime_paths::RUNTIME_DIR;
use crate::status::ConfigStatus;
use crate::{client, name};

/// Descriptors per ring: the most that QEMU offers on a vhost-user NIC in both directions. A long
/// ring buffers frames while the guest does not run.
pub(crate) const RING: u16 = 1024;

/// Which NIC.
#[derive(Debug, clap::Args)]
pub(crate) struct NicArgs {
    /// Name of the VM
    vm: String,
    /// Configuration file, for a daemon that does not run; without it, the command asks the running daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Network, if the VM can have a port on several
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Number of queue pairs, at most one for each of the guest's processors
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16), value_name = "PAIRS")]
    queues: u16,
}

impl NicArgs {
    /// Finds the NIC in the configuration. `runtime_dir`, from the command line, takes precedence
    /// over the file.
    pub(crate) fn find(&self, runtime_dir: Option<&Path>) -> Result<Nic, Failure> {
        self.find_in(&self.configuration(runtime_dir)?)
    }

    /// Returns the configuration.
    pub(crate) fn configuration(&self, runtime_dir: Option<&Path>) -> Result<Config, Failure> {
        match &self.config {
            Some(file) => Ok(config::load(Some(file), runtime_dir)?),
            None => in_force(runtime_dir.unwrap_or(Path::new(RUNTIME_DIR))),
        }
    }

    /// Finds the NIC in this configuration.
    pub(crate) fn find_in(&self, config: &Config) -> Result<Nic, Failure> {
        let nic = find(config, &self.vm, self.network.as_deref())?;
        Ok(Nic {
            queues: self.queues,
            ..nic
        })
    }

    /// Returns whether the VM can have a NIC, as far as the arguments and this configuration say.
    pub(crate) fn wants_nic(&self, config: &Config) -> bool {
        let lists = |network: &Network| network.ports.iter().any(|port| port.vm == self.vm);
        let mut networks = config.networks.iter();
        self.network.is_some() || networks.any(|network| network.accept || lists(network))
    }

    /// Returns the name of the VM.
    pub(crate) fn vm(&self) -> &str {
        &self.vm
    }
}

/// Returns the configuration in force of the daemon that serves `runtime_dir`.
fn in_force(runtime_dir: &Path) -> Result<Config, Failure> {
    let status: ConfigStatus =
        client::get(runtime_dir, "/v1/config").map_err(Failure::NoConfiguration)?;
    Ok(config::of_text(&status.text, runtime_dir)?)
}

/// A VM's NIC, found in a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nic {
    /// Name of its network.
    pub(crate) network: String,
    /// Its vhost-user socket.
    pub(crate) socket: PathBuf,
    /// The process that listens on the socket.
    pub(crate) mode: Mode,
    /// Its address.
    pub(crate) mac: Mac,
    /// Queue pairs.
    pub(crate) queues: u16,
}

/// Finds the NIC of `vm`: a listed port, or one that a network accepts.
pub(crate) fn find(config: &Config, vm: &str, network: Option<&str>) -> Result<Nic, Failure> {
    name::check(vm).map_err(|error| Failure::Usage(format!("`{vm}`: {error}")))?;
    let network = choose(config, vm, network)?;
    let listed = network.ports.iter().find(|port| port.vm == vm);
    let nic = Nic {
        network: network.name.clone(),
        socket: listed.map_or_else(
            || network.folder.join(format!("{vm}.sock")),
            |port| port.socket.clone(),
        ),
        mode: listed.map_or(Mode::Client, |port| port.mode),
        mac: address(network, vm)?,
        queues: 1,
    };
    if nic.socket.as_os_str().len() > MAX_SOCKET_PATH {
        let text = format!(
            "the socket {} would be longer than {MAX_SOCKET_PATH} bytes; choose a shorter \
             --runtime-dir",
            nic.socket.display()
        );
        return Err(Failure::Usage(text));
    }
    Ok(nic)
}

fn choose<'c>(config: &'c Config, vm: &str, network: Option<&str>) -> Result<&'c Network, Failure> {
    let lists = |network: &&Network| network.ports.iter().any(|port| port.vm == vm);
    let named = |one: &&Network| network.is_none_or(|name| one.name == name);
    let candidates: Vec<&Network> = config.networks.iter().filter(named).collect();
    let names = |networks: &[&Network]| {
        let names: Vec<_> = networks
            .iter()
            .map(|network| network.name.as_str())
            .collect();
        names.join(", ")
    };
    if let ([], Some(name)) = (candidates.as_slice(), network) {
        let all: Vec<&Network> = config.networks.iter().collect();
        let text = format!(
            "there is no network `{name}`; the networks are: {}",
            names(&all)
        );
        return Err(Failure::Usage(text));
    }
    let mut homes: Vec<&Network> = candidates.iter().copied().filter(lists).collect();
    if homes.is_empty() {
        homes = candidates
            .into_iter()
            .filter(|network| network.accept)
            .collect();
    }
    match homes.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::Usage(unknown(config, vm))),
        several => Err(Failure::Usage(format!(
            "VM `{vm}` can have a port on several networks: {}; choose one with --network",
            names(several)
        ))),
    }
}

fn unknown(config: &Config, vm: &str) -> String {
    let networks = config.networks.iter();
    let known = networks.flat_map(|network| network.ports.iter().map(|port| port.vm.as_str()));
    let meant = name::nearest(vm, known).map(|near| format!(" Did you mean `{near}`?"));
    format!(
        "VM `{vm}` has no port: list it as a [[network.port]], or set `accept = true` on a \
         network.{}",
        meant.unwrap_or_default()
    )
}

/// Returns the configured address, or else one derived from the names of the network and the VM.
fn address(network: &Network, vm: &str) -> Result<Mac, Failure> {
    let listed = network.ports.iter().find(|port| port.vm == vm);
    if let Some(mac) = listed.and_then(|port| port.mac) {
        return Ok(mac);
    }
    let mac = derived(&network.name, vm);
    let others = network.ports.iter().filter(|port| port.vm != vm);
    for other in others {
        if other
            .mac
            .unwrap_or_else(|| derived(&network.name, &other.vm))
            == mac
        {
            let text = format!(
                "the address {mac}, which Vicinity derives from the name `{vm}`, belongs to VM `{}`; set `mac` \
                    of `{vm}` in the configuration",
                other.vm
            );
            return Err(Failure::Usage(text));
        }
    }
    Ok(mac)
}

/// Returns a locally administered address in QEMU's range that depends only on the names.
fn derived(network: &str, vm: &str) -> Mac {
    // FNV-1a, folded to the 24 free bits. The function must never change, because guests and DHCP
    // servers store addresses. The zero byte separates the names, so that ("a", "bc") and ("ab",
    // "c") have different addresses.
    let text = network.bytes().chain([0]).chain(vm.bytes());
    let hash = text.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let folded = hash ^ (hash >> 24) ^ (hash >> 48);
    let [.., a, b, c] = folded.to_be_bytes();
    Mac::from_octets([0x52, 0x54, 0, a, b, c])
}

#[cfg(test)]
pub(crate) mod tests {
    use switch::guard::Rules;
    use switch::limits::MODERATION_DELAY_US;

    use super::*;
    use crate::config::{Owner, Port};

    fn port(vm: &str, mac: Option<&str>, mode: Mode) -> Port {
        Port {
            vm: vm.into(),
            mac: mac.map(|mac| mac.parse().unwrap()),
            socket: format!("/srv/my vms/{vm},1.sock").into(),
            mode,
            mirror: Vec::new(),
            rules: Rules::default(),
            owner: Owner::default(),
        }
    }

    pub(crate) fn config() -> Config {
        let network = |name: &str, accept, ports| Network {
            name: name.into(),
            folder: Path::new("/run/vicinity").join(name),
            accept,
            workers: 1,
            moderation_us: MODERATION_DELAY_US,
            fdb_lookups: None,
            uplink: None,
            uplink_rules: Rules::default(),
            unlisted_rules: Rules::default(),
            snooping: false,
            ports,
        };
        let web = port("web", Some("52:54:00:00:00:01"), Mode::Server);
        let db = port("db", None, Mode::Client);
        Config {
            runtime_dir: "/run/vicinity".into(),
            networks: vec![
                network("blue", false, vec![web.clone(), db]),
                network("green", true, vec![web]),
            ],
            members: Vec::new(),
            message_unix_group: None,
            message_uplink: None,
            groups: Vec::new(),
            vsocks: Vec::new(),
            space_budget: None,
            spaces: Vec::new(),
            web: Default::default(),
        }
    }

    #[test]
    fn derived_addresses_never_change() {
        let nic = find(&config(), "db", None).unwrap();
        assert_eq!(nic.mac, derived("blue", "db"));
        assert_eq!(derived("default", "web").to_string(), "52:54:00:3d:64:98");
        assert_ne!(derived("a", "bc"), derived("ab", "c"));
    }

    #[test]
    fn the_error_of_a_missing_object_names_the_existing_ones() {
        let said =
            |vm: &str, network: Option<&str>| find(&config(), vm, network).unwrap_err().to_string();
        assert!(said("web", None).contains("blue, green; choose one with --network"));
        assert!(said("web", Some("red")).contains("the networks are: blue, green"));
        assert!(said("wbe", Some("blue")).contains("Did you mean `web`?"));
        assert!(said("a/b", None).contains("letters, digits"));
    }

    #[test]
    fn a_derived_address_that_is_taken_is_refused() {
        let mut config = config();
        let taken = derived("blue", "db").to_string();
        config.networks[0].ports[0].mac = Some(taken.parse().unwrap());
        let said = find(&config, "db", None).unwrap_err().to_string();
        assert!(said.contains("belongs to VM `web`"), "{said}");
    }
}
