//! The agent's loop: reads the peers, receives addresses, corrects routes, and waits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::Device;
use crate::error::{AgentError, io};
use crate::netlink::{Changes, Netlink};
use crate::plan::{Mac, Route, plan};
use crate::talk::{Announcement, Talk};

/// The interval at which the agent sends its addresses and checks everything.
const TICK: Duration = Duration::from_secs(1);

/// If a peer sends nothing for so long, its agent has ended, or its VM has no addresses any more.
const SILENCE: Duration = Duration::from_secs(60);

/// The direct device, and the addresses that its peers sent.
struct Attachment {
    device: Device,
    talk: Talk,
    received: BTreeMap<Mac, (Vec<IpAddr>, Instant)>,
    /// The addresses that the agent sent last, the peers at that time, and the time.
    announced: Option<(Vec<IpAddr>, BTreeSet<Mac>, Instant)>,
    /// The reason why the agent could not correct routes. The agent logs it once.
    trouble: Option<String>,
}

/// Runs until `stop`, which is called once a second, returns true. Then removes all routes of the agent.
pub(crate) fn run(stop: &dyn Fn() -> bool) -> Result<(), AgentError> {
    let netlink = Netlink::open()?;
    let changes = Changes::open()?;
    let mut attachment: Option<Attachment> = None;
    while !stop() {
        changes.clear();
        if attachment
            .as_ref()
            .is_some_and(|attachment| !attachment.device.is_there())
        {
            eprintln!("the direct device is gone");
            attachment = None;
        }
        if attachment.is_none() {
            attachment = attach(&netlink)?;
        }
        if let Some(attachment) = &mut attachment {
            attachment.turn(&netlink);
        }
        wait(&changes, attachment.as_ref())?;
    }
    apply_routes(&netlink, None, &BTreeMap::new())?;
    if let Some(mut attachment) = attachment {
        attachment.announce(Vec::new(), BTreeSet::new());
    }
    Ok(())
}

fn attach(netlink: &Netlink) -> Result<Option<Attachment>, AgentError> {
    let Some(device) = Device::find() else {
        return Ok(None);
    };
    device.relax();
    netlink.up(device.index)?;
    eprintln!("the direct device is {}", device.name);
    Ok(Some(Attachment {
        talk: Talk::open(device.index)?,
        device,
        received: BTreeMap::new(),
        announced: None,
        trouble: None,
    }))
}

impl Attachment {
    /// Retries later what fails, because devices and addresses appear and disappear.
    fn turn(&mut self, netlink: &Netlink) {
        let trouble = self.try_turn(netlink).err().map(|error| error.to_string());
        if trouble.is_some() && trouble != self.trouble {
            eprintln!("vicinity-agent: {}", trouble.as_deref().unwrap_or_default());
        }
        self.trouble = trouble;
    }

    fn try_turn(&mut self, netlink: &Netlink) -> Result<(), AgentError> {
        let now = Instant::now();
        while let Some(Announcement { mac, addresses }) = self.talk.receive() {
            self.received.insert(mac, (addresses, now));
        }
        let lately = |at: Instant| now.saturating_duration_since(at) < SILENCE;
        self.received.retain(|_, (_, at)| lately(*at));
        let own = netlink.addresses(self.device.index)?;
        let there = self.device.peers();
        let addresses = own.iter().map(|own| own.address).collect();
        if self.must_announce(&addresses, &there) {
            self.announce(addresses, there.clone());
        }
        let peers = self.received.iter();
        let peers = peers.map(|(mac, (addresses, _))| (*mac, addresses.clone()));
        apply_routes(
            netlink,
            Some(&self.device),
            &plan(&own, &there, &peers.collect()),
        )
    }

    /// Returns whether the agent must send its addresses again: they or the peers changed, or the
    /// interval has passed.
    fn must_announce(&self, addresses: &Vec<IpAddr>, there: &BTreeSet<Mac>) -> bool {
        let Some((sent, to, at)) = &self.announced else {
            return true;
        };
        sent != addresses || to != there || at.elapsed() >= TICK
    }

    fn announce(&mut self, addresses: Vec<IpAddr>, to: BTreeSet<Mac>) {
        self.talk.send(&Announcement {
            mac: self.device.mac,
            addresses: addresses.clone(),
        });
        self.announced = Some((addresses, to, Instant::now()));
    }
}

/// Adds and removes routes so that exactly these exist.
fn apply_routes(
    netlink: &Netlink,
    device: Option<&Device>,
    wanted: &BTreeMap<Route, Mac>,
) -> Result<(), AgentError> {
    let mut there = BTreeSet::new();
    for (route, index) in netlink.routes()? {
        let ours = device.is_some_and(|device| device.index == index);
        if ours && wanted.contains_key(&route) {
            there.insert(route);
        } else {
            netlink.remove(route, index)?;
            println!("{}: as before", route.to);
        }
    }
    let Some(device) = device else {
        return Ok(());
    };
    for (route, mac) in wanted.iter().filter(|(route, _)| !there.contains(route)) {
        netlink.add(*route, device.index, *mac)?;
        println!("{}: direct", route.to);
    }
    Ok(())
}

/// Waits until something changes, or the next interval begins.
fn wait(changes: &Changes, attachment: Option<&Attachment>) -> Result<(), AgentError> {
    let mut descriptors = vec![PollFd::new(changes, PollFlags::IN)];
    if let Some(attachment) = attachment {
        // The kernel reports a change of a sysfs file as POLLPRI: see sysfs_notify() in the kernel.
        descriptors.push(PollFd::new(&attachment.device, PollFlags::PRI));
        descriptors.push(PollFd::new(&attachment.talk, PollFlags::IN));
    }
    let limit = Timespec::try_from(TICK).unwrap_or_default();
    match poll(&mut descriptors, Some(&limit)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        result => io(result, || "wait".to_owned()).map(drop),
    }
}
