//! A trust group: its members come and go.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::auto::Auto;
use crate::control::Control;
use crate::member::{Member, MemberState};
use crate::parts::{Parts, Seat};
use crate::policy::{Policies, Policy};
use crate::vm::Vm;
use crate::{DirectError, io};
use vhost::alarm::Alarm;

/// How often VMs that are not there are looked for.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// How long guests may take to let go, at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// VMs of one owner, which may see each other's memory.
#[derive(Debug)]
pub struct Group {
    control: Control,
    seats: Vec<Seat>,
    members: Vec<Member>,
    policies: Policies,
    auto: Auto,
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The VM.
    pub name: String,
    /// One word: `absent`, `joined`, `leaving`, `out`.
    pub state: &'static str,
    /// Why it is not where it should be.
    pub trouble: Option<String>,
}

/// Longest wait for a doorbell that does not take a ring.
const DOORBELL_TIMEOUT: Duration = Duration::from_millis(1);

impl Group {
    /// Open one for the VMs of these names. Each has its monitor at `NAME.qmp` in `folder`, which
    /// is made, and is looked for as soon as [`Group::serve`] runs.
    ///
    /// # Errors
    /// Too many members, or the kernel refuses.
    pub fn new(folder: &Path, names: &[String]) -> Result<Self, DirectError> {
        let made = fs::create_dir_all(folder);
        io(made, || format!("make {}", folder.display()))?;
        let parts = Parts::make(folder, names)?;
        Ok(Self::with(folder, parts, Policies::default()))
    }

    /// Serve a group with these parts, whatever became of who served it before.
    #[must_use]
    pub fn with(folder: &Path, parts: Parts, policies: Policies) -> Self {
        let Parts { control, seats } = parts;
        let members = (0..).zip(&seats);
        let members = members.map(|(id, seat)| Member::new(folder, &seat.name, id));
        Self {
            control,
            members: members.collect(),
            seats,
            policies,
            auto: Auto::default(),
        }
    }

    /// Work until `go_on`, asked about four times a second, says no; then [`Group::close`].
    ///
    /// # Errors
    /// The kernel refuses, or a VM does not let go.
    pub fn serve(&mut self, go_on: impl Fn() -> bool) -> Result<(), DirectError> {
        while go_on() {
            self.turn()?;
            self.wait(None)?;
        }
        self.close()
    }

    /// Have a VM that is there leave, or let it join again; whether this is a member's name. It stays
    /// out until it is let in or ends.
    pub fn keep_out(&mut self, name: &str, out: bool) -> bool {
        let member = self.members.iter_mut().find(|member| member.name == name);
        let Some(member) = member else {
            return false;
        };
        member.kept_out = out && member.vm.is_some();
        true
    }

    /// How everybody is.
    pub fn standings(&self) -> impl Iterator<Item = Standing> {
        self.members.iter().map(|member| Standing {
            name: member.name.clone(),
            state: match (&member.vm, member.state) {
                (None, _) => "absent",
                (_, MemberState::Joined) => "joined",
                (_, MemberState::Leaving(_) | MemberState::Unplugging) => "leaving",
                (_, MemberState::Detached) => "out",
            },
            trouble: member.trouble(),
        })
    }

    /// Do what is to be done now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn turn(&mut self) -> Result<(), DirectError> {
        let mut changed = false;
        for member in &mut self.members {
            let events = member.vm.as_mut().map(Vm::read_events);
            match events {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) => {
                    self.control.end_sessions(member.id.into())?;
                    changed = true;
                }
                Some(Err(error)) => {
                    tracing::info!("VM {} is gone: {error}", member.name);
                    member.remove_vm(&self.control)?;
                    changed = true;
                }
            }
            changed |= member.advance(&self.seats, &self.control);
        }
        changed |= self.apply_auto_policy()?;
        if changed {
            self.route()?;
            self.ring_doorbells();
        }
        self.update_views();
        Ok(())
    }

    /// All pairs of members.
    fn pairs(&self) -> impl Iterator<Item = (&Member, &Member)> {
        let members = self.members.iter().enumerate();
        members.flat_map(|(index, one)| {
            let others = self.members.iter().skip(index + 1);
            others.map(move |other| (one, other))
        })
    }

    /// Say who is to send to whom.
    fn route(&self) -> Result<(), DirectError> {
        let is_joined =
            |member: &Member| member.vm.is_some() && member.state == MemberState::Joined;
        for (one, other) in self.pairs() {
            let pays = match self.policy(one, other) {
                Policy::Always => true,
                Policy::Auto => !self.auto.is_away((one.id, other.id)),
                Policy::Never => false,
            };
            let here = is_joined(one) && is_joined(other) && pays;
            self.control.route(one.id.into(), other.id.into(), here)?;
        }
        Ok(())
    }

    /// Look at the pairs whose policy is `auto`, now and then; whether something is to change.
    fn apply_auto_policy(&mut self) -> Result<bool, DirectError> {
        let now = Instant::now();
        if !self.auto.is_due(now) {
            return Ok(false);
        }
        let pairs = self.pairs();
        let pairs = pairs.filter(|(one, other)| self.policy(one, other) == Policy::Auto);
        let pairs: Vec<_> = pairs.map(|(one, other)| (one.id, other.id)).collect();
        if pairs.is_empty() {
            return Ok(false);
        }
        let members = self.members.iter();
        let short = self.auto.short(members.filter_map(|member| {
            let vm = member.vm.as_ref()?;
            Some((member.id, vm.process))
        }));
        let mut changed = false;
        for pair @ (one, other) in pairs {
            let traffic = self.control.traffic(one.into(), other.into())?;
            let is_short = short.contains(&one) || short.contains(&other);
            if let Some(away) = self.auto.weigh(pair, traffic, is_short, now) {
                self.log_auto_decision(pair, away);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Tell the operator of what was decided for a pair.
    fn log_auto_decision(&self, (one, other): (u16, u16), away: Duration) {
        let name = |id: u16| {
            let member = self.members.get(usize::from(id));
            member.map_or("?", |member| member.name.as_str())
        };
        let (one, other) = (name(one), name(other));
        match away.as_secs() {
            0 => tracing::info!("VMs {one} and {other} are to send directly again"),
            away => tracing::info!(
                "VMs {one} and {other} send short packets while CPUs are short: by their ordinary \
                 NICs for {away} s"
            ),
        }
    }

    fn policy(&self, one: &Member, other: &Member) -> Policy {
        self.policies.of(&one.name, &other.name)
    }

    /// Have every guest look at the window.
    fn ring_doorbells(&self) {
        // A QEMU can make its doorbell block and fill it. It keeps it for ever, see `lib.rs`, and is
        // not told any more; the others are.
        let mut alarm = match Alarm::new(DOORBELL_TIMEOUT) {
            Ok(alarm) => alarm,
            Err(error) => return tracing::warn!(%error, "no guest can be told to look"),
        };
        alarm.set();
        for seat in &self.seats {
            if !seat.doorbell.ring() {
                tracing::warn!("VM {} has filled its doorbell, and is not told", seat.name);
            }
        }
    }

    /// Every member sees every other, and nobody who is gone.
    fn update_views(&mut self) {
        for index in 0..self.members.len() {
            let (before, rest) = self.members.split_at_mut(index);
            let Some((member, after)) = rest.split_first_mut() else {
                continue;
            };
            if !member.is_in() {
                continue;
            }
            let Some(vm) = &mut member.vm else {
                continue;
            };
            if let Err(error) = vm.collect_removed_views() {
                tracing::warn!("VM {}: {error}", member.name);
            }
            for peer in before.iter().chain(after.iter()) {
                let policy = self.policies.of(&member.name, &peer.name);
                let seen = peer.vm.as_ref().map(|vm| &vm.ram);
                let seen = seen.filter(|_| peer.is_in() && policy != Policy::Never);
                if let Err(error) = vm.set_view(&peer.name, seen) {
                    tracing::warn!("VM {} and {}: {error}", member.name, peer.name);
                }
            }
        }
    }

    /// Until a monitor says something, or `other` has something to read, or it is time to look for
    /// VMs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>) -> Result<(), DirectError> {
        let vms = self.members.iter().filter_map(|member| member.vm.as_ref());
        let vms = vms.map(|vm| vm.as_fd()).chain(other);
        let mut descriptors: Vec<_> = vms
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let limit = Timespec::try_from(SCAN_INTERVAL).unwrap_or_default();
        match poll(&mut descriptors, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            result => io(result, || "wait for QEMU".to_owned()).map(drop),
        }
    }

    /// Take everything away from the VMs.
    ///
    /// # Errors
    /// The kernel refuses, or a VM does not let go.
    pub fn close(&mut self) -> Result<(), DirectError> {
        for member in &mut self.members {
            member.kept_out = true;
        }
        let end = Instant::now() + CLOSE_TIMEOUT;
        loop {
            self.turn()?;
            let left = self.members.iter().filter(|member| {
                // Who is not there, or was only just found, has nothing of this process.
                member.vm.is_some() && member.state != MemberState::Detached
            });
            let left: Vec<_> = left.map(|member| member.name.as_str()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let text = format!(
                    "these VMs keep devices that were taken away: {}",
                    left.join(", ")
                );
                return Err(DirectError::Memory(text));
            }
            self.wait(None)?;
        }
    }
}
