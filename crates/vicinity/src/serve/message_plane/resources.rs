//! What the message plane needs from the system: its sockets, its memory, and its uplink's interface.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use message::MessageError;
use message::remote::{
    DaemonInterface, INTERFACE_SOCKET, InterfaceOffer, Member, Resources, interface_folder,
};
use tokio::net::UnixListener;

use crate::config::Owner;
use crate::message_uplink::{HOST, Plan, Uplink, share_board};
use crate::processes::message::protocol::Accepted;
use crate::runtime_paths::{MESSAGE_FOLDER, member_socket};
use crate::serve::runtime_dir::{self, Folder, RuntimeDirError, SOCKET_MODE, SocketFile};

/// Why the message plane cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourcesError {
    /// A folder or socket.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// Memory or doorbells.
    #[error("cannot create the message plane's memory: {0}")]
    Resources(#[from] MessageError),
    /// The uplink.
    #[error(
        "cannot use the uplink {interface}: {source}; check its name and its MTU (4130 or more)"
    )]
    Uplink {
        /// Its interface.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// What the message plane needs from the system.
#[derive(Debug)]
pub(in crate::serve) struct PlaneResources {
    pub(super) parts: Resources,
    /// The members' sockets, each with its owner.
    pub(super) listeners: Vec<(UnixListener, Owner)>,
    /// The socket by which programs get sockets on the uplink's interface, and what they are told.
    pub(super) program_sockets: Option<(UnixListener, InterfaceOffer)>,
    _files: Vec<SocketFile>,
    /// The connections of running VMs, by the number of the member. The connection of a VM that ended stays until
    /// the next one connects; the data plane notices its end by the socket.
    pub(super) guests: BTreeMap<usize, Accepted>,
    /// Each uplink process gets a newly opened socket, because the interface may have been removed and added.
    pub(super) uplink: Option<Plan>,
    pub(super) runtime_dir: PathBuf,
    /// Last, so that it is empty when it is dropped.
    _folder: Folder,
}

impl PlaneResources {
    pub(in crate::serve) fn take(
        runtime_dir: &Path,
        members: Vec<(Member, Owner)>,
        uplink: Option<&Uplink>,
        unix_group: Option<u32>,
    ) -> Result<Self, ResourcesError> {
        let (mut members, mut owners): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let plan = uplink.map(|uplink| {
            let plan = uplink.plan(&mut members);
            let open = plan.and_then(|plan| plan.open().map(|_port| plan));
            open.map_err(|source| ResourcesError::Uplink {
                interface: uplink.interface.clone(),
                source,
            })
        });
        let plan = plan.transpose()?;
        let folder = Folder::create(&runtime_dir.join(MESSAGE_FOLDER))?;
        // The uplink is a member, but not in the configuration.
        owners.resize_with(members.len(), Owner::default);
        let open = |member: &Member| {
            runtime_dir::listen(&member_socket(runtime_dir, &member.name), SOCKET_MODE)
        };
        let resources = members.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (listeners, mut files): (Vec<_>, Vec<_>) = resources.into_iter().unzip();
        if members.iter().any(|member| member.name == HOST) {
            share_board(runtime_dir, unix_group)?;
        }
        let serving = uplink.is_some_and(|uplink| uplink.has_program_sockets);
        let serving = unix_group.filter(|_| serving);
        let program_sockets = match plan.as_ref().and_then(|plan| plan.offer.clone()) {
            Some(offer) => {
                let folder = interface_folder(runtime_dir, &offer.interface);
                DaemonInterface::share(&folder, serving).map_err(MessageError::from)?;
                let path = runtime_dir.join(INTERFACE_SOCKET);
                let (listener, file) = runtime_dir::listen_for_group(&path, serving)?;
                files.push(file);
                Some((listener, offer))
            }
            None => None,
        };
        Ok(Self {
            parts: Resources::create(members)?,
            listeners: listeners.into_iter().zip(owners).collect(),
            program_sockets,
            _files: files,
            guests: BTreeMap::new(),
            uplink: plan,
            runtime_dir: runtime_dir.to_owned(),
            _folder: folder,
        })
    }
}
