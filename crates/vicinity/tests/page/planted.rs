//! Three faults on a daemon: the page, `top`, `doctor` and the metrics of the alerts tell the same.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use front_end::wire::{addresses, number, request};
use front_end::{Layout, Nic, Options, Wire, frame};

use super::{Browser, Faults, Page, WIDE};
use crate::common::neighbours::started;
use crate::common::{Daemon, until};

const CONFIG: &str = "
[[network]]
name = \"lan\"
[[network.port]]
vm = \"web\"
[[network.port]]
vm = \"db\"
[[network.port]]
vm = \"cache\"
[[network.port]]
vm = \"log\"
[[network.port]]
vm = \"mail\"
";

/// The VMs at fault, and the beginning of what is said of each.
const FAULTS: [(&str, &str); 3] = [
    ("mail", "The memory of mail is private to its QEMU"),
    ("db", "db has taken no frame for"),
    (
        "cache",
        "cache and log both use the address 52:54:00:00:00:07",
    ),
];

fn connect(daemon: &Daemon, vm: &str) -> Nic {
    let stream = UnixStream::connect(daemon.path(&format!("lan/{vm}.sock"))).unwrap();
    started(Wire::new(stream.into()), Options::default())
}

fn send(nic: &mut Nic, to: [u8; 6], from: u16, number: u64) {
    let bytes = frame::numbered(to, frame::mac(from), number, 60);
    nic.wait_to_send(&bytes, Layout::One);
}

/// Two VMs use the address of station 7.
fn plant_duplicate_address(daemon: &Daemon) -> [Nic; 2] {
    let mut nics = ["cache", "log"].map(|vm| connect(daemon, vm));
    for number in 0..20 {
        for nic in &mut nics {
            send(nic, frame::BROADCAST, 7, number);
            nic.wait_until_sent();
        }
    }
    nics
}

/// A frame waits for a VM that posts no buffers.
fn plant_stuck_receiver(daemon: &Daemon) -> [Nic; 2] {
    let [mut web, mut db] = ["web", "db"].map(|vm| connect(daemon, vm));
    send(&mut db, frame::BROADCAST, 2, 0);
    db.wait_until_sent();
    db.options.post = false;
    db.restart();
    until("a guest without buffers", || {
        daemon.port("db")["state"] == "running"
    });
    send(&mut web, frame::mac(2), 1, 0);
    [web, db]
}

/// A VM names a ring that is not in the memory that it shares, until its quarantine is long.
fn plant_private_memory(daemon: &Daemon) {
    until("a long quarantine", || {
        let port = daemon.port("mail");
        match port["state"].as_str().unwrap() {
            "quarantined" => return port["quarantine_left_ms"].as_u64() > Some(14_000),
            "waiting" => {}
            _ => return false,
        }
        let stream = UnixStream::connect(daemon.path("lan/mail.sock")).unwrap();
        let nic = started(Wire::new(stream.into()), Options::default());
        nic.stop_ring(1);
        let elsewhere = addresses(1, 1 << 44, 1 << 44, 1 << 44);
        nic.wire.send(request::SET_VRING_ADDR, &elsewhere, &[]);
        // The ring starts with its kick descriptor.
        let kick = nic.tx.kick_fd();
        nic.wire
            .send(request::SET_VRING_KICK, &number(1), &[kick.as_fd()]);
        until("the quarantine", || {
            daemon.port("mail")["state"] == "quarantined"
        });
        false
    });
}

#[test]
fn planted_faults_are_in_the_first_600_px_and_every_command_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let _duplicate = plant_duplicate_address(&daemon);
    let _stuck = plant_stuck_receiver(&daemon);
    let page = Page::of_daemon(&daemon.path(""));
    let mut browser = Browser::start();
    browser.open(&page.url, WIDE, false);
    plant_private_memory(&daemon);
    for (vm, text) in FAULTS {
        let of = format!(
            "[...document.querySelectorAll('#problem-list li')].find(e => e.querySelector('.name').textContent === '{vm}')"
        );
        // Other VMs of this host may have problems, too.
        browser.until(&of);
        let bottom = browser.eval(&format!(
            "{of}.querySelector('.name').getBoundingClientRect().bottom"
        ));
        assert!(bottom.as_f64().unwrap() < 600.0, "{vm} is at {bottom}");
        let said = browser.eval(&format!("{of}.textContent"));
        let said = said.as_str().unwrap();
        assert!(said.contains(text) && said.contains("since"), "{said}");
        assert!(said.contains("vicinity "), "no command: {said}");
    }
    browser.picture("planted");
    assert_eq!(browser.faults(&page.origin), Faults::default());
    let top = daemon.command(&["top", "--once"]).stdout;
    let doctor = daemon.command(&["doctor"]).stdout;
    for (command, said) in [("top", top), ("doctor", doctor)] {
        let said = String::from_utf8(said).unwrap();
        for (vm, text) in FAULTS {
            let at = said
                .find(text)
                .unwrap_or_else(|| panic!("{command}: {vm}\n{said}"));
            let line = said[..at].rsplit('\n').next().unwrap();
            assert!(line.contains("for "), "since when: {line}");
            let next = said[at..].lines().nth(1).unwrap();
            assert!(next.contains("vicinity ") && next.contains(vm), "{next}");
        }
    }
    // What the alerts look at.
    let metrics = String::from_utf8(daemon.command(&["metrics"]).stdout).unwrap();
    let metric = |name: &str, vm: &str| -> f64 {
        let start = format!("{name}{{network=\"lan\",vm=\"{vm}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap().parse().unwrap()
    };
    assert_eq!(metric("vicinity_port_quarantined", "mail"), 1.0);
    assert!(metric("vicinity_port_stuck_seconds", "db") >= 1.0);
    assert!(metric("vicinity_port_duplicate_addresses", "cache") > 0.0);
    for vm in ["web", "log"] {
        assert_eq!(metric("vicinity_port_stuck_seconds", vm), 0.0);
        assert_eq!(metric("vicinity_port_quarantined", vm), 0.0);
    }
}
