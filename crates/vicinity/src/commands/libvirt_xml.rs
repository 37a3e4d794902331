//! `vicinity libvirt-xml`: prints the elements that a libvirt domain needs for a NIC on a network.
//!
//! These are an `<interface type='vhostuser'>` and shared memory. Without shared memory, libvirt starts the
//! VM, but the switch cannot forward its frames. Format: libvirt's "Domain XML format". libvirt's `mode` is
//! the role of QEMU: `client` if Vicinity listens.

use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use roxmltree::{Document, Node};

use super::failure::Failure;
use super::guest_memory::GuestMemory;
use super::nic::{Nic, RING};
use crate::config::Mode;

const SOURCE: &str = "<source type='memfd'/>";
const ACCESS: &str = "<access mode='shared'/>";

/// Returns the interface.
pub(crate) fn interface(nic: &Nic) -> String {
    let path = attribute(&nic.socket);
    // The side that connects tries again, so that the connection survives a restart of the other
    // side.
    let source = match nic.mode {
        Mode::Server => format!(
            "<source type='unix' path='{path}' mode='client'>\n    \
             <reconnect enabled='yes' timeout='1'/>\n  </source>"
        ),
        Mode::Client => format!("<source type='unix' path='{path}' mode='server'/>"),
    };
    let queues = match nic.queues {
        0 | 1 => String::new(),
        queues => format!(" queues='{queues}'"),
    };
    let mac = nic.mac;
    format!(
        "<interface type='vhostuser'>\n  <mac address='{mac}'/>\n  {source}\n  \
         <model type='virtio'/>\n  \
         <driver{queues} rx_queue_size='{RING}' tx_queue_size='{RING}'/>\n</interface>\n"
    )
}

/// Returns the elements for shared memory and the interface.
pub(crate) fn parts(nic: &Nic, kind: &GuestMemory) -> String {
    format!(
        "<!-- in <domain> -->\n{}{}<!-- in <devices> -->\n{}",
        memory(kind),
        kind.numatune().unwrap_or_default(),
        interface(nic)
    )
}

fn memory(kind: &GuestMemory) -> String {
    let more = kind.backing().into_iter();
    let more: String = more.map(|(_, element)| format!("  {element}\n")).collect();
    format!("<memoryBacking>\n  {SOURCE}\n  {ACCESS}\n{more}</memoryBacking>\n")
}

/// Returns the domain in `file` with both elements added. Leaves elements that the domain already
/// has unchanged.
pub(crate) fn domain(nic: &Nic, kind: &GuestMemory, file: &Path) -> Result<String, Failure> {
    let wrong = |what: &str| Failure::Usage(format!("{}: {what}", file.display()));
    let text = read(file)
        .map_err(|error| wrong(&format!("cannot read the file: {error}; check the path")))?;
    merged(nic, kind, &text).map_err(|what| wrong(&what))
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

/// A range of the text, and its replacement.
type Change = (Range<usize>, String);

fn merged(nic: &Nic, kind: &GuestMemory, text: &str) -> Result<String, String> {
    let document = Document::parse(text).map_err(|error| {
        format!(
            "the file is not XML: {error}; `virsh dumpxml \
        VM` writes a domain"
        )
    })?;
    let domain = document.root_element();
    if domain.tag_name().name() != "domain" {
        return Err("the file is not a libvirt domain; `virsh dumpxml VM` writes one".to_owned());
    }
    let mut changes = share(domain, kind, text)?;
    changes.extend(attach(domain, text, nic));
    if child(domain, "features").is_none_or(|features| child(features, "acpi").is_none()) {
        tracing::warn!(
            "the domain has no <acpi/> in its <features>; libvirt before 9.3 then starts QEMU with an option \
                that QEMU 9 and newer refuse. Add <features><acpi/></features>"
        );
    }
    // Apply changes from the end, so that the ranges of the remaining changes stay valid.
    changes.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut text = text.to_owned();
    for (range, new) in changes {
        text.replace_range(range, &new);
    }
    Ok(text)
}

/// Returns the changes that make the domain's memory shared, and of this kind.
fn share(domain: Node<'_, '_>, kind: &GuestMemory, text: &str) -> Result<Vec<Change>, String> {
    let private = |node: &Node<'_, '_>| {
        node.has_tag_name("cell") && node.attribute("memAccess") == Some("private")
    };
    if domain.descendants().any(|node| private(&node)) {
        return Err(
            "a NUMA <cell> has memAccess='private', so Vicinity cannot map its memory; remove that attribute"
                .to_owned(),
        );
    }
    let mut changes = Vec::new();
    let mut elements = String::new();
    if child(domain, "numatune").is_none() {
        elements += &kind.numatune().unwrap_or_default();
    }
    let backing = child(domain, "memoryBacking");
    if backing.is_none() {
        elements += &memory(kind);
    }
    // Two changes at one place would not keep their order.
    if !elements.is_empty() {
        changes.push(append(domain, text, &elements));
    }
    let Some(backing) = backing else {
        return Ok(changes);
    };
    let mut missing = String::new();
    match child(backing, "source") {
        Some(source) if source.attribute("type") == Some("anonymous") => {
            changes.push((source.range(), SOURCE.to_owned()));
        }
        // Memory from files and huge pages can be shared already.
        Some(_) => {}
        None if child(backing, "hugepages").is_some() => {}
        None => missing += &format!("{SOURCE}\n"),
    }
    match child(backing, "access") {
        Some(access) if access.attribute("mode") != Some("shared") => {
            changes.push((access.range(), ACCESS.to_owned()));
        }
        Some(_) => {}
        None => missing += &format!("{ACCESS}\n"),
    }
    for (name, element) in kind.backing() {
        if child(backing, name).is_none() {
            missing += &format!("{element}\n");
        }
    }
    if !missing.is_empty() {
        changes.push(append(backing, text, &missing));
    }
    Ok(changes)
}

/// Returns the change that adds the interface, unless the domain has one with the same socket.
fn attach(domain: Node<'_, '_>, text: &str, nic: &Nic) -> Option<Change> {
    let Some(devices) = child(domain, "devices") else {
        let devices = format!("<devices>\n{}</devices>\n", indented(&interface(nic), 2));
        return Some(append(domain, text, &devices));
    };
    let path = nic.socket.to_str();
    let ours = |node: Node<'_, '_>| {
        node.has_tag_name("interface")
            && child(node, "source").is_some_and(|source| source.attribute("path") == path)
    };
    let there = devices.children().any(ours);
    (!there).then(|| append(devices, text, &interface(nic)))
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// Returns the change that appends a child to an element.
fn append(element: Node<'_, '_>, text: &str, child: &str) -> Change {
    let depth = element.ancestors().filter(Node::is_element).count();
    let child = indented(child, 2 * depth);
    let outer = indented("", 2 * (depth - 1)) + &" ".repeat(2 * (depth - 1));
    let range = element.range();
    let whole = text.get(range.clone()).unwrap_or_default();
    let name = element.tag_name().name();
    match whole.rfind("</") {
        Some(close) => {
            // The closing tag keeps its own indentation.
            let before = whole.get(..close).unwrap_or_default().trim_end().len();
            let from = range.start + before;
            (from..range.start + close, format!("\n{child}{outer}"))
        }
        // <devices/>
        None => (
            range.end - 2..range.end,
            format!(">\n{child}{outer}</{name}>"),
        ),
    }
}

fn indented(text: &str, by: usize) -> String {
    let space = " ".repeat(by);
    text.lines()
        .map(|line| format!("{space}{line}\n"))
        .collect()
}

/// Returns a path as the value of an attribute in single quotes.
fn attribute(path: &Path) -> String {
    let text = path.display().to_string();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::nic::find;
    use crate::commands::nic::tests::config;

    fn nic() -> Nic {
        find(&config(), "web", Some("blue")).unwrap()
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
        let once = merged(&nic(), &GuestMemory::default(), PLAIN).unwrap();
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
            merged(&nic(), &GuestMemory::default(), &once).unwrap(),
            once
        );
        let empty = merged(
            &nic(),
            &GuestMemory::default(),
            "<domain><devices/></domain>",
        )
        .unwrap();
        assert_eq!(
            merged(&nic(), &GuestMemory::default(), &empty).unwrap(),
            empty
        );
        assert!(
            merged(&nic(), &GuestMemory::default(), "<domain/>")
                .unwrap()
                .contains("<driver rx_queue")
        );
    }

    #[test]
    fn memory_that_is_there_is_made_shared() {
        let with = |backing: &str| {
            let inside = format!("<memoryBacking>{backing}</memoryBacking>\n</domain>");
            merged(
                &nic(),
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
            let once = merged(&nic(), &kind, &before).unwrap();
            let document = Document::parse(&once).unwrap();
            let backing = child(document.root_element(), "memoryBacking").unwrap();
            for name in ["source", "access", "hugepages", "allocation"] {
                let same = backing.children().filter(|one| one.has_tag_name(name));
                assert_eq!(same.count(), 1, "{name}: {once}");
            }
            let numatune = child(document.root_element(), "numatune").unwrap();
            assert!(child(numatune, "memory").is_some(), "{once}");
            assert_eq!(merged(&nic(), &kind, &once).unwrap(), once);
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        let said = |text: &str| merged(&nic(), &GuestMemory::default(), text).unwrap_err();
        assert!(said("<network/>").contains("virsh dumpxml"));
        assert!(said("<domain>").contains("is not XML"));
        let private = "<domain><cpu><numa><cell memAccess='private'/></numa></cpu></domain>";
        assert!(said(private).contains("memAccess"));
    }
}
