//! A trust group, whose members join and leave.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::auto::Auto;
use crate::control::Control;
use crate::deferred_unplug::DeferredUnplug;
use crate::member::{Member, MemberState};
use crate::policy::{Policies, Policy};
use crate::resources::{GroupResources, MemberResources};
use crate::vm::Vm;
use crate::{DirectError, io};
use vhost::alarm::Alarm;

/// The interval at which the group looks for absent VMs.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// The time that guests have to release their devices when the group closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A group of VMs of one owner, which may see each other's memory.
#[derive(Debug)]
pub struct Group {
    control: Control,
    member_resources: Vec<MemberResources>,
    members: Vec<Member>,
    policies: Policies,
    auto: Auto,
    deferred_unplug: DeferredUnplug,
}

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The VM.
    pub name: String,
    /// One word: `absent`, `joined`, `leaving`, `out`.
    pub state: &'static str,
    /// The reason why the VM is not in the state it should be in.
    pub reason: Option<String>,
    /// What its guest says to have sent to each other member, if anything, since the two use shared memory.
    pub sent_to: Vec<DirectSent>,
}

/// What a member sent to another, as its guest counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectSent {
    /// The other VM.
    pub vm: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The longest wait for a doorbell whose event descriptor blocks.
const DOORBELL_TIMEOUT: Duration = Duration::from_millis(1);

impl Group {
    /// Opens a group for the VMs of these names. The monitor of each is expected at `NAME.qmp` in
    /// `folder`, which is created. [`Group::serve`] looks for the VMs.
    ///
    /// # Errors
    /// There are too many members, or the kernel refuses.
    pub fn new(folder: &Path, names: &[String]) -> Result<Self, DirectError> {
        let made = fs::create_dir_all(folder);
        io(made, || format!("create {}", folder.display()))?;
        let parts = GroupResources::create(names)?;
        Ok(Self::with(folder, parts, Policies::default()))
    }

    /// Makes a group of these parts, which another process may have served before.
    #[must_use]
    pub fn with(folder: &Path, parts: GroupResources, policies: Policies) -> Self {
        let GroupResources {
            control,
            member_resources,
        } = parts;
        let members = (0..).zip(&member_resources);
        let members = members.map(|(id, resources)| Member::new(folder, &resources.name, id));
        Self {
            control,
            members: members.collect(),
            member_resources,
            policies,
            auto: Auto::default(),
            deferred_unplug: DeferredUnplug::default(),
        }
    }

    /// Serves the group until `go_on` returns false, then calls [`Group::close`]. Calls `go_on` about four
    /// times a second.
    ///
    /// # Errors
    /// The kernel refuses, or a VM does not release its devices.
    pub fn serve(&mut self, go_on: impl Fn() -> bool) -> Result<(), DirectError> {
        while go_on() {
            self.advance()?;
            self.wait(None)?;
        }
        self.close()
    }

    /// Makes a running VM leave, or allows it to join again. Returns whether `name` is a member's. The VM
    /// stays out of the group until it is allowed to join again, or ends.
    pub fn set_left(&mut self, name: &str, left: bool) -> bool {
        let member = self.members.iter_mut().find(|member| member.name == name);
        let Some(member) = member else {
            return false;
        };
        member.has_left = left && member.vm.is_some();
        true
    }

    /// Returns the state of every member.
    pub fn statuses(&self) -> impl Iterator<Item = MemberStatus> {
        self.members.iter().map(|member| MemberStatus {
            name: member.name.clone(),
            state: match (&member.vm, member.state) {
                (None, _) => "absent",
                (_, MemberState::Joined) => "joined",
                (
                    _,
                    MemberState::Leftovers(_) | MemberState::Leaving(_) | MemberState::Unplugging,
                ) => "leaving",
                (_, MemberState::Detached) => "out",
            },
            reason: member.reason(),
            sent_to: self.sent_by(member),
        })
    }

    /// Returns what a member's guest says to have sent to each other member. A window that cannot be read has no
    /// figures.
    fn sent_by(&self, member: &Member) -> Vec<DirectSent> {
        let others = self.members.iter().filter(|other| other.id != member.id);
        let sent = others.filter_map(|other| {
            let traffic = self.control.sent(member.id.into(), other.id.into()).ok()?;
            let [packets, bytes] = traffic.iter().fold([0_u64; 2], |[packets, bytes], sent| {
                [
                    packets.saturating_add(sent.packets),
                    bytes.saturating_add(sent.bytes),
                ]
            });
            (packets > 0).then(|| DirectSent {
                vm: other.name.clone(),
                packets,
                bytes,
            })
        });
        sent.collect()
    }

    /// Handles events of monitors, and takes the next step of each member.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn advance(&mut self) -> Result<(), DirectError> {
        self.advance_at(Instant::now())
    }

    fn advance_at(&mut self, now: Instant) -> Result<(), DirectError> {
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
                    tracing::info!("the QEMU of VM {} ended: {error}", member.name);
                    member.remove_vm(&self.control)?;
                    self.deferred_unplug.add(now);
                    changed = true;
                }
            }
            changed |= member.advance(&self.member_resources, &self.control);
        }
        changed |= self.apply_auto_policy()?;
        if changed {
            self.route()?;
            self.ring_doorbells();
        }
        self.update_views(now);
        Ok(())
    }

    /// Returns all pairs of members.
    fn pairs(&self) -> impl Iterator<Item = (&Member, &Member)> {
        let members = self.members.iter().enumerate();
        members.flat_map(|(index, one)| {
            let others = self.members.iter().skip(index + 1);
            others.map(move |other| (one, other))
        })
    }

    /// Writes into the window which members may send to each other directly.
    fn route(&self) -> Result<(), DirectError> {
        let is_joined =
            |member: &Member| member.vm.is_some() && member.state == MemberState::Joined;
        for (one, other) in self.pairs() {
            let pays = match self.policy(one, other) {
                Policy::Always => true,
                Policy::Auto => !self.auto.uses_nics((one.id, other.id)),
                Policy::Never => false,
            };
            let here = is_joined(one) && is_joined(other) && pays;
            self.control.route(one.id.into(), other.id.into(), here)?;
        }
        Ok(())
    }

    /// Decides anew, when that is due, for the pairs whose policy is `auto`. Returns whether a decision changed.
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
        let short = self.auto.short_of_cpu(members.filter_map(|member| {
            let vm = member.vm.as_ref()?;
            Some((member.id, vm.process))
        }));
        let mut changed = false;
        for pair @ (one, other) in pairs {
            let traffic = self.control.traffic(one.into(), other.into())?;
            let is_short = short.contains(&one) || short.contains(&other);
            if let Some(away) = self.auto.decide(pair, traffic, is_short, now) {
                self.log_auto_decision(pair, away);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Logs what was decided for a pair.
    fn log_auto_decision(&self, (one, other): (u16, u16), away: Duration) {
        let name = |id: u16| {
            let member = self.members.get(usize::from(id));
            member.map_or("?", |member| member.name.as_str())
        };
        let (one, other) = (name(one), name(other));
        match away.as_secs() {
            0 => tracing::info!("VMs {one} and {other} use the direct channel again"),
            away => tracing::info!(
                "VMs {one} and {other} send short packets while the host is short of CPUs, so they use their \
                    ordinary NICs for {away} s"
            ),
        }
    }

    fn policy(&self, one: &Member, other: &Member) -> Policy {
        self.policies.of(&one.name, &other.name)
    }

    /// Rings every doorbell, so that every guest reads the window.
    fn ring_doorbells(&self) {
        // A QEMU can make its doorbell block and fill it. The doorbell stays the member's, see
        // `MemberResources::doorbell`, so this member misses rings from then on; the others receive them.
        let mut alarm = match Alarm::new(DOORBELL_TIMEOUT) {
            Ok(alarm) => alarm,
            Err(error) => return tracing::warn!(%error, "cannot notify the guests"),
        };
        alarm.set();
        for resources in &self.member_resources {
            if !resources.doorbell.ring() {
                tracing::warn!(
                    "cannot notify VM {}, because its QEMU filled the doorbell",
                    resources.name
                );
            }
        }
    }

    /// Plugs in and unplugs views, so that every member sees the RAM of every other that is joined, and of
    /// no other. Views of members that have ended may stay for a moment, see [`DeferredUnplug`].
    fn update_views(&mut self, now: Instant) {
        let ended_stay = self.deferred_unplug.is_waiting(now);
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
                if peer.vm.is_none() && ended_stay {
                    continue;
                }
                let policy = self.policies.of(&member.name, &peer.name);
                let seen = peer.vm.as_ref().map(|vm| &vm.ram);
                let seen = seen.filter(|_| peer.is_in() && policy != Policy::Never);
                if let Err(error) = vm.set_view(&peer.name, seen) {
                    tracing::warn!("VM {} and {}: {error}", member.name, peer.name);
                }
            }
        }
    }

    /// Waits until a monitor sends something, `other` is readable, or it is time to look for VMs.
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

    /// Unplugs all devices of the group from the VMs.
    ///
    /// # Errors
    /// The kernel refuses, or a VM does not release its devices.
    pub fn close(&mut self) -> Result<(), DirectError> {
        for member in &mut self.members {
            member.has_left = true;
        }
        let end = Instant::now() + CLOSE_TIMEOUT;
        loop {
            self.advance()?;
            let left = self.members.iter().filter(|member| {
                // A VM that is absent or was only just found has no device of this process.
                member.vm.is_some() && member.state != MemberState::Detached
            });
            let left: Vec<_> = left.map(|member| member.name.as_str()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let text = format!(
                    "the guests of these VMs have not released their unplugged devices: {}; restart these VMs if \
                        this persists",
                    left.join(", ")
                );
                return Err(DirectError::Memory(text));
            }
            self.wait(None)?;
        }
    }
}

#[cfg(test)]
mod tests;
