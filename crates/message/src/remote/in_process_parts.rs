//! The broker, the gateway and the uplink of a message plane in the program's process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mxoe::{Datagrams, Port};

use super::broker::Broker;
use super::directory::NamedNic;
use super::gateway::Gateway;
use super::resources::Member;
use super::shared_interface::SharedInterface;
use super::transport::Transport;
use super::uplink::{Options, Uplink};
use crate::address::Board;
use crate::error::Error;

/// The longest time that the first announcement waits for room on the interface.
const ANNOUNCING: Duration = Duration::from_secs(1);

/// The two members share a region, so that the uplink uses the endpoints' windows itself.
const MEMBERS: [&str; 2] = ["host", "uplink"];
const GROUP: &str = "host+uplink";

/// The sockets of a program.
#[derive(Debug)]
pub(super) struct Sockets {
    /// `None` if the program serves no interface.
    pub(super) port: Option<Port>,
    /// `None` if the interface has no address, or the kernel is too old.
    pub(super) datagrams: Option<Datagrams>,
}

/// The broker, the gateway and the uplink of this process. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) gateway: Gateway,
    /// `None` after the interface has failed.
    pub(super) uplink: Option<Uplink>,
    pub(super) broker: Broker,
    /// The program has called since the plane's thread last looked.
    pub(super) called: bool,
    /// Threads of the program that sleep. Frames wake them.
    pub(super) sleepers: u32,
}

impl Parts {
    /// Joins gateway and uplink with the broker, which needs a thread meanwhile. Their sockets are in `folder`.
    pub(super) fn join(
        folder: &Path,
        board: &Board,
        sockets: Sockets,
        named_nic: NamedNic,
        sharing: Option<SharedInterface>,
    ) -> Result<Self, Error> {
        let [host, uplink] = MEMBERS.map(|member| folder.join(format!("{member}.sock")));
        let members = MEMBERS.map(|member| Member {
            name: member.to_owned(),
            group: Some(GROUP.to_owned()),
            nic: (member == "host").then_some(named_nic.nic),
            uplink: member == "uplink",
        });
        let mut broker = Broker::new(folder, &members)?;
        let joined = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serve = scope.spawn(|| {
                while !joined.load(Ordering::Relaxed) {
                    broker.turn()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok::<_, Error>(())
            });
            let claim = |_| Ok(board.clone());
            let both = Gateway::join_for(&Transport::Socket(host), claim).and_then(|gateway| {
                let options = Options {
                    socket: uplink,
                    port: sockets.port,
                    datagrams: sockets.datagrams,
                    members: vec![named_nic],
                    peer_timeout: mxoe::limits::PEER_TIMEOUT,
                    shared: None,
                };
                Ok((gateway, Uplink::join(options)?))
            });
            joined.store(true, Ordering::Relaxed);
            serve
                .join()
                .map_err(|_| Error::Join("the broker has failed".to_owned()))??;
            both
        })
        .map(|(gateway, mut uplink)| {
            uplink.stay_in_process(sharing);
            Self {
                gateway,
                uplink: Some(uplink),
                broker,
                called: false,
                sleepers: 0,
            }
        })
    }

    /// Makes a node of this host, and announces the host before the program can tell others its address: their connects then find a host that they
    /// know.
    pub(super) fn announce(&mut self) {
        let end = Instant::now() + ANNOUNCING;
        while !self.uplink.as_ref().is_none_or(Uplink::has_announced) && Instant::now() < end {
            self.serve();
        }
    }

    /// Calls the uplink, if there is one. Without the uplink, the broker ends its links.
    pub(super) fn call_uplink(&mut self, call: impl FnOnce(&mut Uplink) -> Result<(), Error>) {
        if self
            .uplink
            .as_mut()
            .map(call)
            .is_some_and(|done| done.is_err())
        {
            self.uplink = None;
        }
    }

    /// Passes messages from the endpoints to the uplink, and back.
    pub(super) fn serve(&mut self) {
        // A part fails only if another one violates the protocol, or for lack of memory.
        let _result = self.gateway.turn();
        let _result = self.broker.turn();
        self.call_uplink(Uplink::turn_with_sockets);
        let _result = self.broker.turn();
        let _result = self.gateway.turn();
    }

    /// Returns whether all endpoints are closed, and the partners have everything.
    pub(super) fn is_idle(&self) -> bool {
        self.gateway.is_idle() && self.uplink.as_ref().is_none_or(Uplink::is_idle)
    }
}
