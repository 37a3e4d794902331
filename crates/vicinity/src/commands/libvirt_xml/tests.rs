use super::devices::interface;
use super::*;
use crate::commands::nic::tests::config;
use crate::commands::nic::{Nic, find};

fn nic() -> Nic {
    find(&config(), "web", Some("blue")).unwrap()
}

/// A VM that has a NIC only.
fn with_nic() -> Devices {
    Devices {
        nic: Some(nic()),
        ..Devices::default()
    }
}

/// A VM that has everything.
fn with_all() -> Devices {
    Devices {
        nic: Some(nic()),
        region: Some("/run/vicinity/message-plane/web.sock".into()),
        space: Some("/run/vicinity/space/web.sock".into()),
        vsock: Some("/run/vicinity/vsock/web.sock".into()),
    }
}

const PLAIN: &str = "<domain type='qemu'>\n  <name>web</name>\n  \
    <features><acpi/></features>\n  <devices>\n    <emulator>/usr/bin/qemu</emulator>\n  \
    </devices>\n</domain>\n";

#[test]
fn what_vicinity_listens_on_qemu_connects_to() {
    let expected = "<interface type='vhostuser'>\n  \
        <mac address='52:54:00:00:00:01'/>\n  \
        <source type='unix' path='/srv/my vms/web,1.sock' mode='client'>\n    \
        <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
        <model type='virtio'/>\n  \
        <driver rx_queue_size='1024' tx_queue_size='1024'/>\n</interface>\n";
    assert_eq!(interface(&nic()), expected);
    let accepted = find(&config(), "new", None).unwrap();
    assert!(interface(&accepted).contains("new.sock' mode='server'/>"));
    let several = Nic { queues: 4, ..nic() };
    assert!(interface(&several).contains("<driver queues='4' rx_"));
}

#[test]
fn a_path_cannot_leave_its_attribute() {
    let socket = "/a'b&<c".into();
    let text = interface(&Nic { socket, ..nic() });
    let document = Document::parse(&text).unwrap();
    let source = child(document.root_element(), "source").unwrap();
    assert_eq!(source.attribute("path"), Some("/a'b&<c"));
}

#[test]
fn a_domain_gets_both_once() {
    let once = merged(&with_nic(), &GuestMemory::default(), PLAIN).unwrap();
    let expected = PLAIN.replace(
        "  </devices>\n</domain>",
        &format!(
            "{}  </devices>\n{}</domain>",
            indented(&interface(&nic()), 4),
            indented(&memory(&GuestMemory::default()), 2)
        ),
    );
    assert_eq!(once, expected);
    assert_eq!(
        merged(&with_nic(), &GuestMemory::default(), &once).unwrap(),
        once
    );
    let empty = merged(
        &with_nic(),
        &GuestMemory::default(),
        "<domain><devices/></domain>",
    )
    .unwrap();
    assert_eq!(
        merged(&with_nic(), &GuestMemory::default(), &empty).unwrap(),
        empty
    );
    assert!(
        merged(&with_nic(), &GuestMemory::default(), "<domain/>")
            .unwrap()
            .contains("<driver rx_queue")
    );
}

#[test]
fn a_domain_gets_a_region_and_a_space_once() {
    let once = merged(&with_all(), &GuestMemory::default(), PLAIN).unwrap();
    let document = Document::parse(&once).unwrap();
    let devices = child(document.root_element(), "devices").unwrap();
    let server = child(child(devices, "shmem").unwrap(), "server").unwrap();
    let path = "/run/vicinity/message-plane/web.sock";
    assert_eq!(server.attribute("path"), Some(path));
    let space = child(devices, "filesystem").unwrap();
    let target = child(space, "target").unwrap();
    assert_eq!(target.attribute("dir"), Some("space"));
    assert_eq!(
        merged(&with_all(), &GuestMemory::default(), &once).unwrap(),
        once
    );
    // The command adds the elements that the domain lacks, and adds no element twice.
    let later = merged(
        &with_all(),
        &GuestMemory::default(),
        &merged(&with_nic(), &GuestMemory::default(), PLAIN).unwrap(),
    )
    .unwrap();
    for element in ["<interface", "<shmem", "<filesystem", "<memoryBacking"] {
        assert_eq!(later.matches(element).count(), 1, "{later}");
    }
}

#[test]
fn a_region_alone_leaves_the_memory_as_it_is() {
    let region = Devices {
        nic: None,
        space: None,
        vsock: None,
        ..with_all()
    };
    assert!(
        !merged(&region, &GuestMemory::default(), PLAIN)
            .unwrap()
            .contains("memoryBacking")
    );
    assert!(!parts(&region, &GuestMemory::default()).contains("in <domain>"));
    let all = parts(&with_all(), &GuestMemory::default());
    for part in [
        "<memoryBacking>",
        "<interface ",
        "<shmem ",
        "<filesystem ",
        "<qemu:commandline ",
    ] {
        assert!(all.contains(part), "{all}");
    }
}

/// Returns the words in the `<qemu:commandline>` elements of a domain.
fn options(domain: &str) -> Vec<String> {
    let document = Document::parse(domain).unwrap();
    let lines = document.root_element().children();
    let lines = lines.filter(|child| child.has_tag_name((QEMU, "commandline")));
    let words = lines.flat_map(|line| line.children().filter(Node::is_element));
    words
        .inspect(|word| assert!(word.has_tag_name((QEMU, "arg"))))
        .map(|word| word.attribute("value").unwrap().to_owned())
        .collect()
}

const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

#[test]
fn a_domain_gets_the_options_of_a_socket_device_once_beside_its_own() {
    let vsock = Devices {
        vsock: Some("/run/a,b'<c/web.sock".into()),
        ..Devices::default()
    };
    let expected = [
        "-chardev",
        "socket,id=vicinity-vsock,path=/run/a,,b'<c/web.sock",
        "-device",
        "vhost-user-vsock-pci,chardev=vicinity-vsock,addr=0x1c",
    ];
    let merged = |domain: &str| merged(&vsock, &GuestMemory::default(), domain).unwrap();
    for domain in [PLAIN, "<domain/>", "<domain><devices/></domain>"] {
        let once = merged(domain);
        assert_eq!(options(&once), expected, "{once}");
        assert!(once.contains("<memoryBacking>"), "{once}");
        assert_eq!(merged(&once), once);
    }
    // A domain keeps its own options, whatever prefix it has.
    let own = PLAIN
        .replace("<domain ", &format!("<domain xmlns:q='{QEMU}' "))
        .replace(
            "</domain>",
            "  <q:commandline>\n    <q:arg value='-snapshot'/>\n  </q:commandline>\n</domain>",
        );
    let once = merged(&own);
    let all: Vec<_> = ["-snapshot"].into_iter().chain(expected).collect();
    assert_eq!(options(&once), all, "{once}");
    assert_eq!(merged(&once), once);
    let empty = format!("<domain xmlns:q='{QEMU}'><q:commandline/></domain>");
    assert_eq!(options(&merged(&empty)), expected);
    let printed = parts(&vsock, &GuestMemory::default());
    assert!(!printed.contains("in <devices>"), "{printed}");
    assert!(printed.contains("<memoryBacking>") && printed.contains("<qemu:commandline "));
}

#[test]
fn memory_that_is_there_is_made_shared() {
    let with = |backing: &str| {
        let inside = format!("<memoryBacking>{backing}</memoryBacking>\n</domain>");
        merged(
            &with_nic(),
            &GuestMemory::default(),
            &PLAIN.replace("</domain>", &inside),
        )
        .unwrap()
    };
    let huge = with("<hugepages/>");
    assert!(
        huge.contains("<hugepages/>") && huge.contains(ACCESS),
        "{huge}"
    );
    assert!(!huge.contains(SOURCE), "{huge}");
    let private = with("<source type='anonymous'/><access mode='private'/>");
    assert!(private.contains(&format!("{SOURCE}{ACCESS}")), "{private}");
    let file = with("<source type='file'/>");
    assert!(file.contains(ACCESS) && !file.contains(SOURCE), "{file}");
}

#[test]
fn the_kind_of_memory_is_added_once() {
    let kind = crate::commands::guest_memory::tests::options(&[
        "--hugetlb=2M",
        "--prealloc",
        "--host-node=0",
    ]);
    for before in [
        PLAIN.to_owned(),
        PLAIN.replace(
            "<devices>",
            "<memoryBacking>\n<locked/></memoryBacking><devices>",
        ),
    ] {
        let once = merged(&with_nic(), &kind, &before).unwrap();
        let document = Document::parse(&once).unwrap();
        let backing = child(document.root_element(), "memoryBacking").unwrap();
        for name in ["source", "access", "hugepages", "allocation"] {
            let same = backing.children().filter(|one| one.has_tag_name(name));
            assert_eq!(same.count(), 1, "{name}: {once}");
        }
        let numatune = child(document.root_element(), "numatune").unwrap();
        assert!(child(numatune, "memory").is_some(), "{once}");
        assert_eq!(merged(&with_nic(), &kind, &once).unwrap(), once);
    }
}

#[test]
fn what_is_no_domain_is_refused() {
    let said = |text: &str| merged(&with_nic(), &GuestMemory::default(), text).unwrap_err();
    assert!(said("<network/>").contains("virsh dumpxml"));
    assert!(said("<domain>").contains("is not XML"));
    let private = "<domain><cpu><numa><cell memAccess='private'/></numa></cpu></domain>";
    assert!(said(private).contains("memAccess"));
}
