//! A full network: two VMs, and light front-ends on all other ports.

use std::os::unix::net::UnixStream;

use front_end::frame::mac;
use front_end::{Layout, Nic, Options, Wire};

use crate::arp;
use crate::counters::Counters;
use crate::guest::{ping, serve_iperf, tcp_both_ways};
use crate::rig::{Rig, ip, step};

const PORTS: u8 = 64;

fn config() -> String {
    let light: String = (3..=PORTS)
        .map(|number| format!("[[network.port]]\nvm = \"light{number}\"\n"))
        .collect();
    format!("[[network]]\nname = \"lan\"\naccept = true\n{light}")
}

#[test]
#[ignore = "`make soak` runs it; sixty_four_ports_talk_all_to_all of vicinity-switch has no VMs"]
fn sixty_four_ports() {
    let rig = Rig::new(Some(&config()));
    step("62 front-ends");
    let mut nics: Vec<(u8, Nic)> = (3..=PORTS)
        .map(|number| {
            let socket = rig.daemon().path(&format!("lan/light{number}.sock"));
            let wire = Wire::new(UnixStream::connect(socket).unwrap().into());
            let mut nic = Nic::new(wire, Options::default());
            nic.start(|| {});
            nic.sync();
            (number, nic)
        })
        .collect();
    let [red, blue] = rig.boot_named(["red", "blue"]);

    step("all ports run");
    for (number, _) in &nics {
        rig.until_state(&format!("light{number}"), "running");
    }

    step("each front-end sends an ARP request for a VM's address");
    let target = [10, 98, 0, 1];
    for (number, nic) in &mut nics {
        let number = *number;
        let address = mac(u16::from(number));
        let request = arp::request(address, [10, 98, 0, number], target);
        nic.wait_to_send(&request, Layout::One);
        while !arp::is_answer(&nic.wait_to_receive().frame, address, target) {}
    }

    step("the VMs exchange frames that other ports do not receive");
    ping(&red, &ip(2));
    for (_, nic) in &mut nics {
        while nic.receive().is_some() {}
    }
    let [before] = Counters::of(rig.daemon(), ["light3"]);
    serve_iperf(&blue);
    tcp_both_ways(&red, &ip(2), 16);
    let [after] = Counters::of(rig.daemon(), ["light3"]);
    let flooded =
        after.grown(&before, "rx_frames") + after.lost_by_receiver() - before.lost_by_receiver();
    assert!(flooded < 100, "{flooded} frames were flooded");
}
