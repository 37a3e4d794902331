//! Options of QEMU for which libvirt has no element, as libvirt's `<qemu:commandline>`
//! ("QEMU command-line passthrough" of its QEMU driver). `<vsock>` is the device of the host's kernel alone.

use roxmltree::Node;

use super::devices::{Devices, escaped, vsock};
use super::edit::{Addition, append, child, indented};

/// The namespace of the elements.
const NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// Returns the element, if the devices need options.
pub(super) fn element(devices: &Devices) -> Option<String> {
    let arguments = indented(&arguments(&vsock(devices.vsock.as_deref()?), "qemu"), 2);
    Some(format!(
        "<qemu:commandline xmlns:qemu='{NAMESPACE}'>\n{arguments}</qemu:commandline>\n"
    ))
}

fn arguments(words: &[String], prefix: &str) -> String {
    let argument = |word: &String| format!("<{prefix}:arg value='{}'/>\n", escaped(word));
    words.iter().map(argument).collect()
}

/// Returns what the domain lacks of the options.
pub(super) fn merge(domain: Node<'_, '_>, text: &str, devices: &Devices) -> Option<Addition> {
    let words = vsock(devices.vsock.as_deref()?);
    let there = domain
        .children()
        .find(|child| child.has_tag_name((NAMESPACE, "commandline")));
    let Some(there) = there else {
        return element(devices).map(Addition::AtEnd);
    };
    let has = |word: &String| {
        there
            .children()
            .any(|argument| argument.attribute("value") == Some(word))
    };
    let [_, chardev, ..] = &words;
    if has(chardev) {
        return None;
    }
    let prefix = there.lookup_prefix(NAMESPACE).unwrap_or("qemu");
    let missing = arguments(&words, prefix);
    Some(Addition::Inside(append(there, text, &missing)))
}

/// Returns whether the domain has a socket device of the host's kernel. Linux uses only one.
pub(super) fn has_other_device(domain: Node<'_, '_>) -> bool {
    child(domain, "devices").is_some_and(|devices| child(devices, "vsock").is_some())
}
