//! `vicinity qemu-args`: the options that give a QEMU one NIC on a network.

use std::path::{Path, PathBuf};

use switch::mac::Mac;

use crate::config::{Config, MAX_SOCKET_PATH, Mode, Network};
use crate::failure::Failure;
use crate::name;
use crate::qemu::{RECONNECT_MS, Version};

/// Descriptors per ring: the most that QEMU offers on a vhost-user NIC in both directions. A
/// long ring rides out the moments in which a guest does not run.
const RING: u16 = 1024;

/// A VM's NIC, found in a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nic {
    network: String,
    socket: PathBuf,
    mode: Mode,
    mac: Mac,
}

/// Find the NIC of `vm`: a listed port, or one that a network accepts.
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
        let text = format!("there is no network `{name}`; there are: {}", names(&all));
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

/// The configured address, else one derived from the names of the network and the VM.
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
                "the address {mac} that is derived for VM `{vm}` belongs to VM `{}`; give `{vm}` \
                 a `mac` in the configuration",
                other.vm
            );
            return Err(Failure::Usage(text));
        }
    }
    Ok(mac)
}

/// A locally administered address in QEMU's range that depends on the names alone.
fn derived(network: &str, vm: &str) -> Mac {
    // FNV-1a, folded to the 24 bits that are free. It must never change: guests and DHCP
    // servers remember addresses. The zero byte keeps ("a", "bc") and ("ab", "c") apart.
    let text = network.bytes().chain([0]).chain(vm.bytes());
    let hash = text.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let folded = hash ^ (hash >> 24) ^ (hash >> 48);
    let [.., a, b, c] = folded.to_be_bytes();
    Mac::from_octets([0x52, 0x54, 0, a, b, c])
}

/// QEMU's options for a NIC with so many queue pairs, as pairs of option and value. `qemu` is the version that will be
/// used, if it is known.
pub(crate) fn options(
    nic: &Nic,
    memory: &str,
    queues: u16,
    qemu: Option<Version>,
) -> Vec<(&'static str, String)> {
    let id = format!("vicinity-{}", nic.network);
    let path = value(&nic.socket);
    let socket = match nic.mode {
        Mode::Client => "server=on,wait=off",
        Mode::Server if qemu.is_some_and(|version| version < RECONNECT_MS) => "reconnect=1",
        Mode::Server => "reconnect-ms=1000",
    };
    let mac = nic.mac;
    let (netdev, device) = match queues {
        0 | 1 => (String::new(), String::new()),
        // QEMU's own rule: a vector for each ring, one for changes, one for the control queue.
        _ => (
            format!(",queues={queues}"),
            format!(",mq=on,vectors={}", 2 * queues + 2),
        ),
    };
    vec![
        ("-m", memory.to_owned()),
        (
            "-object",
            format!("memory-backend-memfd,id=vicinity-memory,size={memory},share=on"),
        ),
        ("-machine", "memory-backend=vicinity-memory".to_owned()),
        ("-chardev", format!("socket,id={id},path={path},{socket}")),
        (
            "-netdev",
            format!("vhost-user,id={id},chardev={id}{netdev}"),
        ),
        (
            "-device",
            format!(
                "virtio-net-pci,netdev={id},mac={mac},rx_queue_size={RING},tx_queue_size={RING}{device}"
            ),
        ),
    ]
}

/// A path as the value of a QEMU sub-option: a comma ends the value unless it is doubled.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The options as shell words: one option a line joined by backslashes, or all on one line.
pub(crate) fn render(options: &[(&'static str, String)], one_line: bool) -> String {
    let separator = if one_line { " " } else { " \\\n" };
    let words: Vec<String> = options
        .iter()
        .map(|(option, value)| format!("{option} {}", quoted(value)))
        .collect();
    words.join(separator) + "\n"
}

fn quoted(word: &str) -> String {
    // The only text that has no quoted form contains a zero byte, and no path does.
    shlex::try_quote(word).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use switch::guard::Rules;

    use super::*;
    use crate::config::Port;

    fn port(vm: &str, mac: Option<&str>, mode: Mode) -> Port {
        Port {
            vm: vm.into(),
            mac: mac.map(|mac| mac.parse().unwrap()),
            socket: format!("/srv/my vms/{vm},1.sock").into(),
            mode,
            rules: Rules::default(),
        }
    }

    fn config() -> Config {
        let network = |name: &str, accept, ports| Network {
            name: name.into(),
            folder: Path::new("/run/vicinity").join(name),
            accept,
            workers: 1,
            gather_us: crate::config::GATHER_US,
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
            message_uplink: None,
            groups: Vec::new(),
        }
    }

    fn text(nic: &Nic, version: Option<Version>) -> String {
        render(&options(nic, "1G", 1, version), true)
    }

    #[test]
    fn more_than_one_queue_pair() {
        let nic = find(&config(), "new", None).unwrap();
        let text = render(&options(&nic, "1G", 4, None), true);
        assert!(text.contains("chardev=vicinity-green,queues=4"), "{text}");
        assert!(text.contains(",mq=on,vectors=10"), "{text}");
    }

    #[test]
    fn a_listed_port_in_server_mode() {
        let nic = find(&config(), "web", Some("blue")).unwrap();
        let expected = "-m 1G \
            -object 'memory-backend-memfd,id=vicinity-memory,size=1G,share=on' \
            -machine 'memory-backend=vicinity-memory' \
            -chardev 'socket,id=vicinity-blue,path=/srv/my vms/web,,1.sock,reconnect-ms=1000' \
            -netdev 'vhost-user,id=vicinity-blue,chardev=vicinity-blue' \
            -device 'virtio-net-pci,netdev=vicinity-blue,mac=52:54:00:00:00:01,\
            rx_queue_size=1024,tx_queue_size=1024'\n";
        let plain = |text: &str| text.replace('\'', "");
        assert_eq!(plain(&text(&nic, None)), plain(expected));
        let words = shlex::split(&text(&nic, None)).unwrap();
        assert!(
            words
                .iter()
                .any(|word| word.contains("path=/srv/my vms/web,,1.sock,"))
        );
    }

    #[test]
    fn the_reconnect_option_follows_the_version() {
        let nic = find(&config(), "web", Some("blue")).unwrap();
        assert!(text(&nic, Some(Version(8, 2))).contains(",reconnect=1"));
        assert!(text(&nic, Some(Version(9, 2))).contains(",reconnect-ms=1000"));
        assert!(text(&nic, Some(Version(10, 0))).contains(",reconnect-ms=1000"));
    }

    #[test]
    fn an_accepted_port_listens_in_the_networks_folder() {
        let nic = find(&config(), "new", None).unwrap();
        assert_eq!(nic.socket, Path::new("/run/vicinity/green/new.sock"));
        assert!(text(&nic, None).contains("new.sock,server=on,wait=off"));
    }

    #[test]
    fn derived_addresses_never_change() {
        let nic = find(&config(), "db", None).unwrap();
        assert_eq!(nic.mac, derived("blue", "db"));
        assert_eq!(derived("default", "web").to_string(), "52:54:00:3d:64:98");
        assert_ne!(derived("a", "bc"), derived("ab", "c"));
    }

    #[test]
    fn one_option_a_line_is_one_command() {
        let nic = find(&config(), "new", None).unwrap();
        let options = options(&nic, "512M", 1, None);
        let lines = render(&options, false);
        assert_eq!(lines.lines().count(), 6);
        let joined = lines.replace("\\\n", "");
        assert_eq!(shlex::split(&joined), shlex::split(&render(&options, true)));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let said =
            |vm: &str, network: Option<&str>| find(&config(), vm, network).unwrap_err().to_string();
        assert!(said("web", None).contains("blue, green; choose one with --network"));
        assert!(said("web", Some("red")).contains("there are: blue, green"));
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
