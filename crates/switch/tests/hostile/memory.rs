//! Memory regions that are invalid, not memory, or truncated.

use super::*;

fn map(region: Region, ram: &Ram) -> String {
    let table = [state(1, 0), region.to_bytes()].concat();
    with_wire(|wire| ignore(wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()])))
}

#[test]
fn cve_2020_10722_memory_region_that_overflows() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    for region in [
        Region {
            guest: u64::MAX - 4096,
            ..good
        },
        Region {
            user: u64::MAX - 4096,
            ..good
        },
        Region {
            offset: u64::MAX - 4096,
            ..good
        },
        Region { size: 0, ..good },
        Region {
            size: u64::MAX,
            guest: 1,
            ..good
        },
    ] {
        assert_names(&map(region, &ram), "memory region at");
    }
}

#[test]
fn a_memory_region_past_the_end_of_its_file() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    let text = map(
        Region {
            size: good.size + 1,
            ..good
        },
        &ram,
    );
    assert_names(&text, "ends after its file (1048576 bytes)");
    let text = map(Region { offset: 1, ..good }, &ram);
    assert_names(&text, "ends after its file (1048576 bytes)");
}

#[test]
fn memory_regions_that_overlap() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    let table = [state(2, 0), good.to_bytes(), good.to_bytes()].concat();
    let text = with_wire(|wire| {
        wire.send(request::SET_MEM_TABLE, &table, &[ram.fd(), ram.fd()]);
    });
    assert_names(&text, "overlaps");
}

#[test]
fn memory_that_is_not_memory() {
    let ram = Ram::new(1 << 20);
    let table = [state(1, 0), ram.regions()[0].to_bytes()].concat();
    let (read, _write) = rustix::pipe::pipe().unwrap();
    for fd in [event(), read] {
        let text =
            with_wire(|wire| ignore(wire.send(request::SET_MEM_TABLE, &table, &[fd.as_fd()])));
        assert_names(&text, "neither a memfd");
    }
}

#[test]
fn more_memory_regions_than_a_device_may_have() {
    let ram = Ram::new(1 << 20);
    let text = with_wire(|wire| {
        for index in 0..600 {
            let region = Region {
                guest: index << 12,
                size: 4096,
                user: index << 12,
                offset: 0,
            };
            let payload = [vec![0; 8], region.to_bytes()].concat();
            if !wire.send(request::ADD_MEM_REG, &payload, &[ram.fd()]) {
                break;
            }
        }
    });
    assert_names(&text, "too many regions");
}

#[test]
fn a_memory_region_removed_that_is_not_there() {
    let text = with_wire(|wire| ignore(wire.send(request::REM_MEM_REG, &[0; 40], &[])));
    assert_names(&text, "no memory region at 0x0");
}

#[test]
fn memory_truncated_in_use_sigbus() {
    let text = with_nic(|nic| {
        nic.ram.truncate(0);
        nic.tx.kick();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn memory_truncated_in_use_sigbus_in_the_frame_of_a_sender() {
    let text = against(|plane| {
        let mut nic = plane.nic(BAD, Options::default());
        let pin = Order::SetFdbEntry {
            mac: Mac::from_octets(frame::mac(3)),
            vlan: 0,
            port: PortId(3),
        };
        plane.order(&pin, None);
        let _neighbour = plane.nic(3, Options::default());
        // Truncate behind the rings and the beginning of the frame.
        let begin = frame::numbered(frame::mac(3), frame::mac(BAD), 0, 100);
        nic.ram.write(0x7000, &[vec![0; 12], begin].concat());
        nic.ram.truncate(0x8000);
        let gone = Buffer {
            address: 0x9000,
            length: 1000,
        };
        nic.tx.set_descriptor(1, gone, 0, 0);
        let begin = Buffer {
            address: 0x7000,
            length: 112,
        };
        transmit(&mut nic, begin, NEXT, 1);
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn memory_truncated_in_use_sigbus_in_the_buffers_of_a_receiver() {
    let text = with_receiving_nic(|nic| {
        nic.ram.truncate(0x8000);
        let buffer = Buffer {
            address: 0x9000,
            ..LARGE
        };
        nic.rx.set_descriptor(0, buffer, WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn a_ring_taken_out_of_memory_while_it_runs() {
    let spare = Ram::new(1 << 20);
    let region = Region {
        guest: 1 << 40,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let table = [state(1, 0), region.to_bytes()].concat();
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_MEM_TABLE, &table, &[spare.fd()])));
    assert_names(&text, "descriptor table is not in guest memory");
    let text = with_nic(|nic| {
        let own = [vec![0; 8], nic.ram.regions()[0].to_bytes()].concat();
        nic.wire.send(request::REM_MEM_REG, &own, &[]);
    });
    assert_names(&text, "descriptor table is not in guest memory");
}
