//! Classifies a process by its command line (`proc_pid_cmdline(5)`: words that end in NUL).

/// The kinds of processes that the observer reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A QEMU system emulator: a VM.
    Vm(Machine),
    /// `vicinity serve`: the supervisor, and its networks' workers while they are threads.
    Supervisor,
    /// `vicinity data-plane NETWORK`: one network's workers.
    DataPlane {
        /// The network's name.
        network: String,
    },
}

/// The properties of a VM that QEMU's command line contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The name given with `-name`, if any.
    pub name: Option<String>,
    /// Paths of the sockets that the VM's character devices use; vhost-user ones are among them.
    pub sockets: Vec<String>,
    /// Names of the taps that the command line names.
    pub taps: Vec<String>,
    /// Its vhost-user NICs.
    pub nics: Vec<Nic>,
    /// Whether the VM has memory that other processes can map.
    pub shared: bool,
    /// Whether the VM's memory is encrypted, or private to the guest: SEV or TDX.
    pub encrypted: bool,
    /// Virtual CPUs at the start.
    pub cpus: u32,
    /// The CID of its socket device that the host's kernel serves (`vhost_vsock`), if it has one.
    pub vhost_cid: Option<u32>,
}

/// A vhost-user NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The path of the NIC's socket.
    pub socket: String,
    /// The NIC's MAC address as the command line spells it, if it contains one.
    pub mac: Option<String>,
}

/// Returns the kind of the process with this command line, or `None` if the observer does not read it.
#[must_use]
pub fn kind(cmdline: &[u8]) -> Option<Kind> {
    let words: Vec<_> = cmdline
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let (program, arguments) = words.split_first()?;
    let program = program.rsplit('/').next().unwrap_or(program);
    match program {
        "vicinity" => vicinity(arguments),
        // Red Hat and Proxmox install QEMU under these names.
        "qemu-kvm" | "kvm" => Some(Kind::Vm(machine(arguments))),
        _ if program.starts_with("qemu-system-") => Some(Kind::Vm(machine(arguments))),
        _ => None,
    }
}

fn vicinity(arguments: &[&str]) -> Option<Kind> {
    let mut rest = arguments.iter();
    match *rest.find(|word| ["serve", "data-plane"].contains(word))? {
        "serve" => Some(Kind::Supervisor),
        _ => Some(Kind::DataPlane {
            network: (*rest.next()?).to_owned(),
        }),
    }
}

fn machine(arguments: &[&str]) -> Machine {
    let mut machine = Machine {
        cpus: 1,
        ..Machine::default()
    };
    let mut wiring = ReferencedOptions::default();
    for (option, value) in arguments.iter().zip(arguments.iter().skip(1)) {
        // QEMU accepts one or two dashes before an option.
        match option.strip_prefix("--").or(option.strip_prefix('-')) {
            Some("name") => machine.name = name(value),
            Some("chardev") => {
                machine.sockets.extend(property(value, "path"));
                wiring.chardevs.push(value);
            }
            Some("netdev" | "nic") => {
                machine.taps.extend(property(value, "ifname"));
                wiring.netdevs.push(value);
            }
            Some("device") => {
                wiring.devices.push(value);
                machine.vhost_cid = machine.vhost_cid.or(vhost_cid(value));
            }
            Some("smp") => machine.cpus = cpus(value).unwrap_or(1),
            Some("object") => machine.shared |= is_shared(value),
            // The second property is the older name of the first.
            Some("machine" | "M") => {
                let has = |key| property(value, key).is_some();
                machine.encrypted |= has("confidential-guest-support") || has("memory-encryption");
            }
            _ => {}
        }
    }
    machine.nics = wiring.nics();
    machine
}

/// Returns the CID of a device `vhost-vsock-pci` or one of its variants.
fn vhost_cid(device: &str) -> Option<u32> {
    let driver = property(device, "driver").or_else(|| properties(device).into_iter().next())?;
    let cid = driver
        .starts_with("vhost-vsock")
        .then(|| number(device, "guest-cid"));
    cid.flatten()
}

/// Returns the value of a property that is a number, which JSON has without quotes.
fn number(value: &str, key: &str) -> Option<u32> {
    if let Some((_, rest)) = value.split_once(&format!("\"{key}\":")) {
        let end = rest.find(|letter: char| !letter.is_ascii_digit());
        return rest.get(..end.unwrap_or(rest.len()))?.parse().ok();
    }
    property(value, key)?.parse().ok()
}

/// Returns whether other processes can map a memory object.
fn is_shared(object: &str) -> bool {
    match object.starts_with('{') {
        true => object.contains("\"share\":true"),
        false => property(object, "share").is_some_and(|it| ["on", "yes", "true"].contains(&&*it)),
    }
}

/// The options of QEMU that refer to each other by their ids.
#[derive(Default)]
struct ReferencedOptions<'a> {
    chardevs: Vec<&'a str>,
    netdevs: Vec<&'a str>,
    devices: Vec<&'a str>,
}

impl ReferencedOptions<'_> {
    fn nics(&self) -> Vec<Nic> {
        let nics = self.netdevs.iter().filter_map(|netdev| {
            let chardev = property(netdev, "chardev")?;
            let chardev = with(&self.chardevs, "id", &chardev)?;
            let device = property(netdev, "id").and_then(|id| with(&self.devices, "netdev", &id));
            Some(Nic {
                socket: property(chardev, "path")?,
                mac: device.and_then(|device| property(device, "mac")),
            })
        });
        nics.collect()
    }
}

/// Returns the first option whose property `key` has this value.
fn with<'a>(options: &[&'a str], key: &str, value: &str) -> Option<&'a str> {
    let mut options = options.iter().copied();
    options.find(|option| property(option, key).is_some_and(|it| it == value))
}

/// Returns the number in `-smp 4`, `-smp 4,sockets=2`, `-smp cpus=4` or `-smp sockets=2,cores=2`.
fn cpus(value: &str) -> Option<u32> {
    let number = |key| property(value, key).and_then(|text| text.parse::<u32>().ok());
    let first = properties(value).into_iter().next()?;
    let given = first.parse().ok().or_else(|| number("cpus"));
    given.or_else(|| {
        let parts = ["sockets", "dies", "clusters", "cores", "threads"];
        let mut parts = parts.map(|key| number(key).unwrap_or(1)).into_iter();
        parts.try_fold(1, u32::checked_mul)
    })
}

/// Returns the name in `-name web`, `-name guest=web,debug-threads=on` or `-name web,process=x`.
fn name(value: &str) -> Option<String> {
    let first = properties(value).into_iter().next()?;
    property(value, "guest").or_else(|| match first.split_once('=') {
        None => Some(first),
        Some(_) => None,
    })
}

/// Returns the value of one property of an option. The option is a `key=value` list of QEMU, or a flat
/// JSON object, which libvirt uses for some options.
fn property(value: &str, key: &str) -> Option<String> {
    if let Some(object) = value.strip_prefix('{') {
        let (_, rest) = object.split_once(&format!("\"{key}\":\""))?;
        return Some(rest.split_once('"')?.0.to_owned());
    }
    let mut properties = properties(value).into_iter();
    properties.find_map(|one| Some(one.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// Splits an option at commas. Two commas stand for one comma in a value.
fn properties(value: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push(letter);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::text::changed;

    fn parse(words: &[&str]) -> Option<Kind> {
        kind(words.join("\0").as_bytes())
    }

    fn machine_of(words: &[&str]) -> Machine {
        match parse(words) {
            Some(Kind::Vm(machine)) => machine,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_labs_vms_are_found() {
        let machine = machine_of(&[
            "qemu-system-x86_64",
            "-nodefaults",
            "-name",
            "web",
            "-chardev",
            "socket,id=vhost0,path=/run/vicinity/lan/web.sock,server=on",
            "-netdev",
            "tap,id=net1,ifname=tap7,script=no",
        ]);
        assert_eq!(machine.name.as_deref(), Some("web"));
        assert_eq!(machine.sockets, ["/run/vicinity/lan/web.sock"]);
        assert_eq!(machine.taps, ["tap7"]);
        assert!(machine.nics.is_empty() && !machine.shared);
    }

    #[test]
    fn every_form_of_the_number_of_cpus_is_read() {
        for (value, expected) in [
            ("4", 4),
            ("1,maxcpus=2", 1),
            ("2,sockets=2,cores=1,threads=1", 2),
            ("cpus=8,maxcpus=16", 8),
            ("sockets=2,cores=3,threads=2", 12),
            ("sockets=65536,cores=65536", 1),
            ("many", 1),
        ] {
            let machine = machine_of(&["qemu-system-x86_64", "-smp", value]);
            assert_eq!(machine.cpus, expected, "{value}");
        }
        assert_eq!(machine_of(&["qemu-system-x86_64", "-nodefaults"]).cpus, 1);
    }

    #[test]
    fn nics_are_put_together_from_options_that_name_each_other() {
        let machine = machine_of(&[
            "kvm",
            "-object",
            "memory-backend-memfd,id=m,size=1G,share=on",
            "-chardev",
            "socket,id=c,path=/run/a.sock,server=on",
            "-netdev",
            "vhost-user,id=n,chardev=c",
            "-device",
            "virtio-net-pci,netdev=n,mac=52:54:00:00:00:01",
        ]);
        let nic = Nic {
            socket: "/run/a.sock".into(),
            mac: Some("52:54:00:00:00:01".into()),
        };
        assert_eq!(machine.nics, [nic]);
        assert!(machine.shared);
    }

    #[test]
    fn libvirts_vms_are_found() {
        let machine = machine_of(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=my,,vm,debug-threads=on",
            "-chardev",
            "socket,id=charnet0,path=/run/vicinity/lan/my.sock,reconnect=1",
            "-netdev",
            "{\"type\":\"vhost-user\",\"chardev\":\"charnet0\",\"id\":\"hostnet0\"}",
            "-netdev",
            "{\"type\":\"tap\",\"ifname\":\"vnet3\",\"id\":\"hostnet1\"}",
            "-object",
            "{\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"share\":true,\"size\":1}",
            "-device",
            "{\"driver\":\"virtio-net-pci\",\"netdev\":\"hostnet0\",\"mac\":\"52:54:00:00:00:01\"}",
        ]);
        assert!(machine.shared);
        assert_eq!(machine.nics[0].mac.as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(machine.name.as_deref(), Some("my,vm"));
        assert_eq!(machine.sockets, ["/run/vicinity/lan/my.sock"]);
        assert_eq!(machine.taps, ["vnet3"]);
    }

    /// The second is what libvirt prints for `<vsock>`.
    #[test]
    fn the_cid_of_a_socket_device_of_the_kernel_is_found() {
        for (device, expected) in [
            ("vhost-vsock-pci,guest-cid=3", Some(3)),
            (
                "{\"driver\":\"vhost-vsock-pci\",\"id\":\"vsock0\",\"guest-cid\":42,\"vhostfd\":\"27\"}",
                Some(42),
            ),
            ("vhost-vsock-pci-non-transitional,id=v,guest-cid=7", Some(7)),
            ("vhost-vsock-pci,guest-cid=many", None),
            ("vhost-user-vsock-pci,chardev=vsock", None),
            ("virtio-net-pci,guest-cid=3", None),
        ] {
            let machine = machine_of(&["qemu-system-x86_64", "-device", device]);
            assert_eq!(machine.vhost_cid, expected, "{device}");
        }
    }

    /// The second is what libvirt prints for `<launchSecurity>`.
    #[test]
    fn encrypted_memory_is_found() {
        for (value, expected) in [
            ("q35,memory-backend=m", false),
            ("pc-q35-9.2,usb=off,confidential-guest-support=lsec0", true),
            ("q35,memory-encryption=sev0", true),
        ] {
            let machine = machine_of(&["qemu-system-x86_64", "-machine", value]);
            assert_eq!(machine.encrypted, expected, "{value}");
        }
    }

    #[test]
    fn other_names_of_qemu_count_and_other_programs_do_not() {
        assert_eq!(machine_of(&["/usr/libexec/qemu-kvm"]).name, None);
        assert_eq!(machine_of(&["kvm", "-name", "debug-threads=on"]).name, None);
        for other in ["qemu-img", "bash", "", "grep"] {
            assert_eq!(parse(&[other, "qemu-system-x86_64"]), None, "{other}");
        }
    }

    #[test]
    fn vicinitys_processes_are_distinguished() {
        let serve = ["./vicinity", "--log", "error", "serve"];
        assert_eq!(parse(&serve), Some(Kind::Supervisor));
        let plane = [
            "vicinity",
            "--log",
            "info",
            "data-plane",
            "lan",
            "--workers",
            "2",
        ];
        let network = "lan".to_owned();
        assert_eq!(parse(&plane), Some(Kind::DataPlane { network }));
        assert_eq!(parse(&["vicinity", "top"]), None);
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let reached = Cell::new(0);
        let words = "kvm\0-name\0web\0-chardev\0socket,id=c,path=/run/a.sock,server=on\0-netdev\0\
                     {\"type\":\"vhost-user\",\"chardev\":\"c\",\"id\":\"n\"}\0-netdev\0tap,ifname=tap7\0\
                     -object\0memory-backend-memfd,id=m,share=on\0";
        proptest!(|(words in changed(words), cut: prop::sample::Index, byte: u8)| {
            let mut bytes = words.into_bytes();
            // A command line need not be UTF-8.
            if let Some(other) = bytes.len().checked_sub(1).map(|most| cut.index(most + 1)) {
                bytes[other] = byte;
            }
            if let Some(Kind::Vm(machine)) = kind(&bytes) {
                reached.set(reached.get() + 1);
                prop_assert!(machine.nics.len() <= 2 && machine.taps.len() <= 2);
            }
        });
        assert!(
            reached.get() > 100,
            "{} command lines were a VM's",
            reached.get()
        );
    }

    proptest! {
        #[test]
        fn a_name_with_commas_comes_through(given in "[a-z,=]{1,20}") {
            let escaped = given.replace(',', ",,");
            let machine = machine_of(&["kvm", "-name", &format!("guest={escaped}")]);
            prop_assert_eq!(machine.name, Some(given));
        }
    }
}
