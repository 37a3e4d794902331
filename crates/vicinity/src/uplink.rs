//! The message plane's way to other hosts, from the command line.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use message::far::Member;
use message::far::uplink::{Face, Options, Uplink};
use mxoe::Port;

use crate::failure::Failure;
use crate::name;
use crate::plane::{BOARD, HOST, go_on, socket};

/// The member that is the way out.
const UPLINK: &str = "uplink";

/// The trust group of the host and its uplink: programs of the host reach it directly. No VM can
/// be in a group of this name.
const GROUP: &str = "host+uplink";

/// Where other hosts are, and how this one appears to them.
#[derive(Args, Clone, Debug)]
pub(crate) struct Way {
    /// Reach other hosts by this interface, with MX over Ethernet; its MTU must be 4130 or more
    #[arg(long, value_name = "INTERFACE")]
    uplink: Option<String>,
    /// Name of this host for others [default: the host name]
    #[arg(long, requires = "uplink", value_parser = host_name, value_name = "NAME")]
    host_name: Option<String>,
    /// After how many seconds a host that does not answer is given up
    #[arg(long, default_value_t = mxoe::limits::PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    give_up: u64,
}

fn host_name(text: &str) -> Result<String, name::NameError> {
    name::check(text).map(|()| text.to_owned())
}

/// The uplink before the members are joined.
pub(crate) struct Planned {
    port: Port,
    faces: Vec<Face>,
    patience: Duration,
}

impl Way {
    /// Open the interface, and add the uplink to the members. `None` without one.
    pub(crate) fn plan(&self, members: &mut Vec<Member>) -> Result<Option<Planned>, Failure> {
        let Some(interface) = &self.uplink else {
            return Ok(None);
        };
        let port = Port::open(interface)?;
        let name = self.host_name.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            system.nodename().to_string_lossy().into_owned()
        });
        let mut group = GROUP.to_owned();
        let mut faces = Vec::new();
        for member in &mut *members {
            let mut face = Face {
                nic: member.nic(),
                name: member.name.clone(),
            };
            if member.name == HOST {
                // On the wire it is the interface.
                face.nic = port.mac().nic();
                face.name.clone_from(&name);
                member.nic = Some(face.nic);
                // In a group with VMs, those could write in its name.
                match member.group {
                    None => member.group = Some(GROUP.to_owned()),
                    Some(_) => group = UPLINK.to_owned(),
                }
            }
            faces.push(face);
        }
        members.push(Member {
            name: UPLINK.to_owned(),
            group: Some(group),
            uplink: true,
            ..Member::default()
        });
        let patience = Duration::from_secs(self.give_up);
        Ok(Some(Planned {
            port,
            faces,
            patience,
        }))
    }
}

impl Planned {
    /// Be the uplink until a signal comes, or it fails.
    pub(crate) fn run(self, runtime_dir: &Path) -> Result<(), message::MessageError> {
        let options = Options {
            socket: socket(runtime_dir, UPLINK),
            port: self.port,
            members: self.faces,
            board: runtime_dir.join(BOARD),
            patience: self.patience,
        };
        Uplink::join(options)?.run(go_on)
    }
}
