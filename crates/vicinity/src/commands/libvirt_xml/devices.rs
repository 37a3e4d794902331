//! The devices that a VM has by the configuration, as elements of libvirt's "Domain XML format".

use std::path::{Path, PathBuf};

use crate::commands::failure::Failure;
use crate::commands::nic::{Nic, NicArgs, RING};
use crate::commands::qemu_args::value;
use crate::config::{Config, Mode};
use crate::message_uplink::HOST;
use crate::runtime_paths::{member_socket, space_socket, vsock_device};
use crate::space_device::TAG;

/// What a VM has.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Its NIC on a network.
    pub(super) nic: Option<Nic>,
    /// The socket of its region of the message plane.
    pub(super) region: Option<PathBuf>,
    /// The socket of its space.
    pub(super) space: Option<PathBuf>,
    /// The socket of its socket device.
    pub(super) vsock: Option<PathBuf>,
}

/// An element, and what identifies it among the domain's devices: the path of its socket in an attribute of a
/// child.
pub(super) struct Element {
    /// The name of the element, of the child, and of the attribute.
    pub(super) place: [&'static str; 3],
    pub(super) socket: PathBuf,
    pub(super) text: String,
}

impl Devices {
    /// Finds them in the configuration. A VM without any is an error.
    pub(super) fn find(which: &NicArgs, config: &Config) -> Result<Self, Failure> {
        let vm = which.vm();
        let is_member = vm != HOST && config.members.iter().any(|(member, _)| member.name == vm);
        let has_space = config.spaces.iter().any(|space| space.vm == vm);
        let has_vsock = config.vsocks.iter().any(|vsock| vsock.vm == vm);
        let has_nic = which.wants_nic(config) || !(is_member || has_space || has_vsock);
        Ok(Self {
            nic: has_nic.then(|| which.find_in(config)).transpose()?,
            region: is_member.then(|| member_socket(&config.runtime_dir, vm)),
            space: has_space.then(|| space_socket(&config.runtime_dir, vm)),
            vsock: has_vsock.then(|| vsock_device(&config.runtime_dir, vm)),
        })
    }

    /// Returns their elements.
    pub(super) fn elements(&self) -> Vec<Element> {
        let nic = self.nic.as_ref().map(|nic| Element {
            place: ["interface", "source", "path"],
            socket: nic.socket.clone(),
            text: interface(nic),
        });
        let region = self.region.as_ref().map(|socket| Element {
            place: ["shmem", "server", "path"],
            socket: socket.clone(),
            text: region(socket),
        });
        let space = self.space.as_ref().map(|socket| Element {
            place: ["filesystem", "source", "socket"],
            socket: socket.clone(),
            text: space(socket),
        });
        [nic, region, space].into_iter().flatten().collect()
    }

    /// Returns whether a back-end of theirs maps the VM's memory. A region is memory of its own.
    pub(super) fn need_shared_memory(&self) -> bool {
        self.nic.is_some() || self.space.is_some() || self.vsock.is_some()
    }
}

/// Returns the interface.
pub(super) fn interface(nic: &Nic) -> String {
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

/// Returns the device of a region of the message plane, with the options of `vicinity message qemu-args`.
pub(super) fn region(socket: &Path) -> String {
    let path = attribute(socket);
    format!(
        "<shmem name='vicinity-message'>\n  <model type='ivshmem-doorbell'/>\n  \
         <server path='{path}'/>\n  <msi vectors='1'/>\n</shmem>\n"
    )
}

/// Returns the device of a space, with the options of `vicinity space qemu-args`. The guest mounts it by its tag.
pub(super) fn space(socket: &Path) -> String {
    let path = attribute(socket);
    format!(
        "<filesystem type='mount'>\n  <driver type='virtiofs'/>\n  <source socket='{path}'/>\n  \
         <target dir='{TAG}'/>\n</filesystem>\n"
    )
}

/// Returns the words of QEMU's options for a socket device, with the options of `vicinity vsock qemu-args` and a slot.
///
/// QEMU makes these devices before those that libvirt describes as JSON, and libvirt does not know them. Without a slot,
/// they would take one that libvirt has given to another device. libvirt gives the lowest free slot, and this one last.
pub(super) fn vsock(socket: &Path) -> [String; 4] {
    [
        "-chardev".to_owned(),
        format!("socket,id=vicinity-vsock,path={}", value(socket)),
        "-device".to_owned(),
        "vhost-user-vsock-pci,chardev=vicinity-vsock,addr=0x1c".to_owned(),
    ]
}

/// Returns a path as the value of an attribute in single quotes.
fn attribute(path: &Path) -> String {
    escaped(&path.display().to_string())
}

/// Returns a text as the value of an attribute in single quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
}
