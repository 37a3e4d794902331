//! `vicinity libvirt-xml`: prints the elements that a libvirt domain needs for what the configuration gives its VM.
//!
//! These are an `<interface type='vhostuser'>` for a NIC, a `<shmem>` for a region of the message plane, a
//! `<filesystem>` for a space, a `<qemu:commandline>` for a socket device, and shared memory. Without shared memory,
//! libvirt starts the VM, but the switch cannot forward its frames. Format: libvirt's "Domain XML format". libvirt's
//! `mode` is the role of QEMU: `client` if Vicinity listens.

mod commandline;
mod devices;
mod edit;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

use self::devices::{Devices, Element};
use self::edit::{Addition, Change, append, child, indented};
use super::failure::Failure;
use super::guest_memory::GuestMemory;
use super::nic::NicArgs;

const SOURCE: &str = "<source type='memfd'/>";
const ACCESS: &str = "<access mode='shared'/>";

/// What to print.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Part {
    /// Print only the interface, for `virsh attach-device`
    #[arg(long)]
    interface: bool,
    /// Print only the region of the message plane, for `virsh attach-device`
    #[arg(long)]
    region: bool,
    /// Print only the space, for `virsh attach-device`
    #[arg(long)]
    space: bool,
    /// Print this domain, as `virsh dumpxml` writes it, with the elements added; - is standard input
    #[arg(long, value_name = "FILE")]
    domain: Option<PathBuf>,
}

/// Returns what the command prints.
pub(crate) fn print(
    which: &NicArgs,
    kind: &GuestMemory,
    part: &Part,
    runtime_dir: Option<&Path>,
) -> Result<String, Failure> {
    let config = which.configuration(runtime_dir)?;
    if part.interface {
        return Ok(devices::interface(&which.find_in(&config)?));
    }
    let devices = Devices::find(which, &config)?;
    let vm = which.vm();
    match (&part.domain, &devices) {
        (Some(file), _) => domain(&devices, kind, file),
        (None, Devices { region, .. }) if part.region => match region {
            Some(socket) => Ok(devices::region(socket)),
            None => Err(Failure::Usage(format!(
                "VM `{vm}` is not a member of the message plane: list it as a [[message.member]]"
            ))),
        },
        (None, Devices { space, .. }) if part.space => match space {
            Some(socket) => Ok(devices::space(socket)),
            None => Err(Failure::Usage(format!(
                "VM `{vm}` has no space: list it as a [[space]]"
            ))),
        },
        (None, _) => Ok(parts(&devices, kind)),
    }
}

/// Returns the elements for shared memory and the devices.
fn parts(devices: &Devices, kind: &GuestMemory) -> String {
    let mut text = String::new();
    if devices.need_shared_memory() {
        text += &format!(
            "<!-- in <domain> -->\n{}{}",
            memory(kind),
            kind.numatune().unwrap_or_default()
        );
    }
    let elements = devices.elements();
    if !elements.is_empty() {
        text += "<!-- in <devices> -->\n";
    }
    text.extend(elements.into_iter().map(|element| element.text));
    if let Some(options) = commandline::element(devices) {
        text += "<!-- in <domain> -->\n";
        text += &options;
    }
    text
}

fn memory(kind: &GuestMemory) -> String {
    let more = kind.backing().into_iter();
    let more: String = more.map(|(_, element)| format!("  {element}\n")).collect();
    format!("<memoryBacking>\n  {SOURCE}\n  {ACCESS}\n{more}</memoryBacking>\n")
}

/// Returns the domain in `file` with all elements added. Leaves elements that the domain already
/// has unchanged.
fn domain(devices: &Devices, kind: &GuestMemory, file: &Path) -> Result<String, Failure> {
    let wrong = |what: &str| Failure::Usage(format!("{}: {what}", file.display()));
    let text = read(file)
        .map_err(|error| wrong(&format!("cannot read the file: {error}; check the path")))?;
    merged(devices, kind, &text).map_err(|what| wrong(&what))
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

fn merged(devices: &Devices, kind: &GuestMemory, text: &str) -> Result<String, String> {
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
    // What the end of the domain gets is one change: two at one place would not keep their order.
    let (mut changes, mut end) = match devices.need_shared_memory() {
        true => share(domain, kind, text)?,
        false => (Vec::new(), String::new()),
    };
    let added = [
        attach(domain, text, devices),
        commandline::merge(domain, text, devices),
    ];
    for addition in added.into_iter().flatten() {
        match addition {
            Addition::Inside(change) => changes.push(change),
            Addition::AtEnd(element) => end += &element,
        }
    }
    if !end.is_empty() {
        changes.push(append(domain, text, &end));
    }
    if devices.vsock.is_some() && commandline::has_other_device(domain) {
        tracing::warn!(
            "the domain has a <vsock>, a device of the host's kernel, and Linux uses only one such device; remove it"
        );
    }
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

/// Returns the changes that make the domain's memory shared, and of this kind, and the elements for the domain's end.
fn share(
    domain: Node<'_, '_>,
    kind: &GuestMemory,
    text: &str,
) -> Result<(Vec<Change>, String), String> {
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
    let Some(backing) = backing else {
        return Ok((changes, elements));
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
    Ok((changes, elements))
}

/// Returns the devices that the domain does not have. A device with the same socket is the same.
fn attach(domain: Node<'_, '_>, text: &str, wanted: &Devices) -> Option<Addition> {
    let devices = child(domain, "devices");
    let is_there = |element: &Element| {
        let [name, of, attribute] = element.place;
        let there = devices.into_iter().flat_map(|devices| devices.children());
        let mut there = there.filter(|node| node.has_tag_name(name));
        there.any(|node| {
            child(node, of).and_then(|of| of.attribute(attribute)) == element.socket.to_str()
        })
    };
    let missing = wanted.elements().into_iter();
    let missing = missing.filter(|element| !is_there(element));
    let missing: String = missing.map(|element| element.text).collect();
    match devices {
        _ if missing.is_empty() => None,
        Some(devices) => Some(Addition::Inside(append(devices, text, &missing))),
        None => Some(Addition::AtEnd(format!(
            "<devices>\n{}</devices>\n",
            indented(&missing, 2)
        ))),
    }
}

#[cfg(test)]
mod tests;
