//! The members of the message plane that are not VMs: the host, and the uplink, which is the way to other hosts.

use std::io;
use std::path::Path;
use std::time::Duration;

use message::remote::uplink::NamedNic;
use message::remote::{
    BOARD, DaemonInterface, InterfaceOffer, Member, interface_folder, name_interface,
};
use message::{Board, MessageError};
use mxoe::Port;
use mxoe::wire::Mac;

use crate::unix_group::let_pass;

/// The member that is the host.
pub(crate) const HOST: &str = "host";

/// The member that is the way out.
pub(crate) const UPLINK: &str = "uplink";

/// The trust group of the host and its uplink: programs of the host reach it directly. No VM can
/// be in a group of this name.
const GROUP: &str = "host+uplink";

/// After how long a host that does not answer is given up, unless it is said.
pub(crate) const PEER_TIMEOUT: Duration = mxoe::limits::PEER_TIMEOUT;

/// Returns the name of this host, for others if there is no other one.
pub(crate) fn system_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// Where other hosts are, and how this one appears to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// The interface's name.
    pub(crate) interface: String,
    /// This host's name for others; without it, the one it has.
    pub(crate) host_name: Option<String>,
    /// After how long a host that does not answer is given up.
    pub(crate) peer_timeout: Duration,
    /// The users of the Unix group may serve the interface, too.
    pub(crate) has_program_sockets: bool,
}

/// An uplink with all it needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    interface: String,
    /// This host's members as others know them.
    pub(crate) named_nics: Vec<NamedNic>,
    pub(crate) peer_timeout: Duration,
    /// The interface, if the host is a member: its programs may serve the interface, too.
    pub(crate) offer: Option<InterfaceOffer>,
}

impl Uplink {
    /// Adds the uplink to the members.
    ///
    /// # Errors
    /// There is no such interface.
    pub(crate) fn plan(&self, members: &mut Vec<Member>) -> io::Result<Plan> {
        let own = mxoe::address(&self.interface)?;
        let name = self.host_name.clone().unwrap_or_else(system_name);
        let mut group = None;
        let mut offer = None;
        let mut named_nics = Vec::new();
        for member in &mut *members {
            let mut named_nic = NamedNic {
                nic: member.nic(),
                name: member.name.clone(),
            };
            if member.name == HOST {
                // On the wire it is the interface.
                offer = Some(InterfaceOffer {
                    interface: self.interface.clone(),
                    mac: own,
                    host_name: name.clone(),
                });
                named_nic.nic = own.nic();
                named_nic.name.clone_from(&name);
                member.nic = Some(named_nic.nic);
                // In a group with VMs, those could write in its name.
                if member.group.is_none() {
                    member.group = Some(GROUP.to_owned());
                    group.clone_from(&member.group);
                }
            }
            named_nics.push(named_nic);
        }
        members.push(Member {
            name: UPLINK.to_owned(),
            group,
            uplink: true,
            ..Member::default()
        });
        Ok(Plan {
            interface: self.interface.clone(),
            named_nics,
            peer_timeout: self.peer_timeout,
            offer,
        })
    }
}

/// Lets the users of a Unix group use the board of this host or VM, or only root, without a group.
///
/// # Errors
/// The folder cannot be created, or its permissions cannot be changed.
pub(crate) fn share_board(runtime_dir: &Path, unix_group: Option<u32>) -> Result<(), MessageError> {
    Board::share(&runtime_dir.join(BOARD), unix_group)?;
    if unix_group.is_some() {
        let_pass(runtime_dir)?;
    }
    Ok(())
}

/// Lets programs of the host serve the interface, too. They have their endpoints on the host's board.
///
/// # Errors
/// There is no such interface, or programs have begun to serve it without the daemon.
pub(crate) fn share(
    runtime_dir: &Path,
    interface: &str,
    named_nics: &[NamedNic],
) -> Result<DaemonInterface, MessageError> {
    let mac = mxoe::address(interface)?;
    let folder = interface_folder(runtime_dir, interface);
    name_interface(runtime_dir, interface)?;
    let board = format!("../{BOARD}");
    let nics = named_nics.iter().map(|named_nic| named_nic.nic);
    DaemonInterface::open(&folder, mac, &board, nics.filter(|nic| *nic != mac.nic()))
}

impl Plan {
    /// Returns the interface's name, if programs of the host may serve the interface.
    pub(crate) fn shared(&self) -> Option<&String> {
        self.offer.as_ref().map(|offer| &offer.interface)
    }

    /// Opens the interface. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// There is no such interface, its frames are too short, or this is not allowed.
    pub(crate) fn open(&self) -> io::Result<Port> {
        let macs = self
            .named_nics
            .iter()
            .filter_map(|named_nic| Mac::from_nic(named_nic.nic));
        Port::open(&self.interface, macs)
    }
}
