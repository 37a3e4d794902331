//! The message plane's way to other hosts: from the command line, from the configuration, and as a
//! process of `vicinity serve`.
//!
//! That process is given the socket on the interface, which it could not open itself, and is
//! confined like a data plane before it looks at a frame.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use message::MessageError;
use message::remote::Member;
use message::remote::uplink::{self, Face, Options};
use mxoe::Port;
use mxoe::wire::Mac;
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::Duty;
use switch::control::ControlSocket;

use super::switchboard::{Event, Order, is_to_go_on};
use crate::commands::message::join::{HOST, go_on, socket};
use crate::name;
use crate::processes::data_plane::{DataPlaneError, settle, take_control};

/// The member that is the way out.
pub(crate) const UPLINK: &str = "uplink";

/// The trust group of the host and its uplink: programs of the host reach it directly. No VM can
/// be in a group of this name.
const GROUP: &str = "host+uplink";

/// Where other hosts are, and how this one appears to them, on the command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Way {
    /// Reach other hosts by this interface, with MX over Ethernet; its MTU must be 4130 or more
    #[arg(long, value_name = "INTERFACE")]
    uplink: Option<String>,
    /// Name of this host for others [default: the host name]
    #[arg(long, requires = "uplink", value_parser = host_name, value_name = "NAME")]
    host_name: Option<String>,
    /// After how many seconds a host that does not answer is given up
    #[arg(long, default_value_t = GIVE_UP.as_secs(), value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    give_up: u64,
}

/// After how long a host that does not answer is given up, unless it is said.
pub(crate) const GIVE_UP: Duration = mxoe::limits::PATIENCE;

fn host_name(text: &str) -> Result<String, name::NameError> {
    name::check(text).map(|()| text.to_owned())
}

impl Way {
    pub(crate) fn uplink(&self) -> Option<Uplink> {
        Some(Uplink {
            interface: self.uplink.clone()?,
            host_name: self.host_name.clone(),
            give_up: Duration::from_secs(self.give_up),
        })
    }
}

/// Where other hosts are, and how this one appears to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// The interface's name.
    pub(crate) interface: String,
    /// This host's name for others; without it, the one it has.
    pub(crate) host_name: Option<String>,
    /// After how long a host that does not answer is given up.
    pub(crate) give_up: Duration,
}

/// An uplink with all it needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    interface: String,
    /// This host's members as others know them.
    pub(crate) faces: Vec<Face>,
    pub(crate) give_up: Duration,
}

impl Uplink {
    /// Add the uplink to the members.
    ///
    /// # Errors
    /// There is no such interface.
    pub(crate) fn plan(&self, members: &mut Vec<Member>) -> io::Result<Plan> {
        let own = mxoe::address(&self.interface)?;
        let name = self.host_name.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            system.nodename().to_string_lossy().into_owned()
        });
        let mut group = None;
        let mut faces = Vec::new();
        for member in &mut *members {
            let mut face = Face {
                nic: member.nic(),
                name: member.name.clone(),
            };
            if member.name == HOST {
                // On the wire it is the interface.
                face.nic = own.nic();
                face.name.clone_from(&name);
                member.nic = Some(face.nic);
                // In a group with VMs, those could write in its name.
                if member.group.is_none() {
                    member.group = Some(GROUP.to_owned());
                    group.clone_from(&member.group);
                }
            }
            faces.push(face);
        }
        members.push(Member {
            name: UPLINK.to_owned(),
            group,
            uplink: true,
            ..Member::default()
        });
        Ok(Plan {
            interface: self.interface.clone(),
            faces,
            give_up: self.give_up,
        })
    }
}

impl Plan {
    /// Open the interface. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// There is no such interface, its frames are too short, or this is not allowed.
    pub(crate) fn open(&self) -> io::Result<Port> {
        let macs = self.faces.iter().filter_map(|face| Mac::from_nic(face.nic));
        Port::open(&self.interface, macs)
    }

    /// Be the uplink until a signal comes, or it fails.
    pub(crate) fn run(self, port: Port, runtime_dir: &Path) -> Result<(), MessageError> {
        let options = Options {
            socket: socket(runtime_dir, UPLINK),
            port,
            members: self.faces,
            patience: self.give_up,
        };
        uplink::Uplink::join(options)?.run(|_| go_on())
    }
}

/// Be the uplink that the supervisor says.
pub(crate) fn process(runtime_dir: &Path) -> Result<(), DataPlaneError> {
    sandbox::close_inherited().map_err(DataPlaneError::System)?;
    let control = take_control().map_err(DataPlaneError::Control)?;
    settle("message-uplink").map_err(DataPlaneError::System)?;
    rustix::param::page_size();
    let options = options(&control, runtime_dir).map_err(DataPlaneError::System)?;
    // Before the sandbox closes: the host is reached, and what the kernel can do is asked.
    let mut uplink = uplink::Uplink::join(options).map_err(DataPlaneError::Messages)?;
    uplink.watch(&control).map_err(DataPlaneError::Messages)?;
    let _asked = window::doorbell::fences_all();
    let gaps = sandbox::enter_process();
    for gap in gaps.into_iter().chain(sandbox::enter_thread(Duty::Uplink)) {
        tracing::warn!("the sandbox has a gap: {gap}; see `vicinity doctor`");
    }
    let mut told = Told::default();
    // Each opening of an endpoint on the wire has a random number; sockets tell who is gone; while it
    // looks in vain, others may have the processor; it sleeps, but waits for nothing new; and the
    // supervisor asks how it is, and is told what it has done.
    // syscalls: getrandom recvfrom sched_yield epoll_pwait2 recvmsg sendmsg
    let served = uplink.run(|uplink| {
        told.tell(uplink, &control);
        is_to_go_on(&control)
    });
    served.map_err(DataPlaneError::Messages)
}

/// How often the supervisor is told what an uplink has done, at most.
const TELL: Duration = Duration::from_secs(1);

/// What the supervisor was told, and when.
#[derive(Default)]
struct Told {
    counters: uplink::Counters,
    at: Option<Instant>,
}

impl Told {
    /// Say what the uplink has done, if that is news, and a second has passed.
    fn tell(&mut self, uplink: &mut uplink::Uplink, control: &ControlSocket) {
        let now = Instant::now();
        if self.at.is_some_and(|at| now - at < TELL) {
            return;
        }
        self.at = Some(now);
        let counters = uplink.counters().ok();
        let Some(counters) = counters.filter(|counters| *counters != self.counters) else {
            return;
        };
        // Without room there is another time, and the supervisor's end is heard elsewhere.
        let event = Event::Uplink(counters.into());
        if control.send(&event, None).is_ok() {
            self.counters = counters;
        }
    }
}

/// What the supervisor says first.
fn options(control: &ControlSocket, runtime_dir: &Path) -> io::Result<Options> {
    let mut members = Vec::new();
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        match control.receive::<Order>() {
            Ok(Some((Order::Face { nic, name }, _))) => members.push(Face { nic, name }),
            Ok(Some((Order::Uplink { give_up }, Some(port)))) => {
                return Ok(Options {
                    socket: socket(runtime_dir, UPLINK),
                    port: Port::adopt(port)?,
                    members,
                    patience: give_up,
                });
            }
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
