//! A trust group: its members come and go.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::Control;
use crate::layout::MEMBERS;
use crate::member::Member;
use crate::{DirectError, io};

/// How often VMs that are not there are looked for.
const LOOK: Duration = Duration::from_millis(250);

/// How long guests may take to let go, at the end.
const FAREWELL: Duration = Duration::from_secs(10);

/// VMs of one owner, which may see each other's memory.
#[derive(Debug)]
pub struct Group {
    control: Control,
    members: Vec<Member>,
}

/// Where the monitor of a VM is expected.
#[must_use]
pub fn monitor(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.qmp"))
}

impl Group {
    /// Open one for the VMs of these names. Each has its monitor at `NAME.qmp` in `folder`, which
    /// is made, and is looked for as soon as [`Group::serve`] runs.
    ///
    /// # Errors
    /// Too many members, or the kernel refuses.
    pub fn new(folder: &Path, names: &[String]) -> Result<Self, DirectError> {
        if names.len() > MEMBERS as usize {
            return Err(DirectError::TooMany);
        }
        let made = fs::create_dir_all(folder);
        io(made, || format!("make {}", folder.display()))?;
        let members = (0..).zip(names);
        let members = members.map(|(id, name)| Member::new(folder, name, id));
        Ok(Self {
            control: Control::new()?,
            members: members.collect::<Result<_, _>>()?,
        })
    }

    /// Work until `go_on`, asked about four times a second, says no; then take all views away
    /// again. The windows stay, and are dead.
    ///
    /// # Errors
    /// The kernel refuses, or a VM does not let go.
    pub fn serve(&mut self, go_on: impl Fn() -> bool) -> Result<(), DirectError> {
        while go_on() {
            self.turn()?;
            self.wait()?;
        }
        self.close()
    }

    fn turn(&mut self) -> Result<(), DirectError> {
        for index in 0..self.members.len() {
            let Some(member) = self.members.get_mut(index) else {
                continue;
            };
            let Some(vm) = &mut member.vm else {
                if member.join(&self.control) {
                    self.welcome(index);
                }
                continue;
            };
            match vm.hear() {
                Ok(false) => {}
                Ok(true) => {
                    let id = member.id;
                    self.control.silence(id.into())?;
                    self.ring();
                }
                Err(error) => self.lose(index, &error)?,
            }
        }
        self.show();
        Ok(())
    }

    /// It learns of everybody's doorbell, also of those who are not there yet.
    fn welcome(&self, index: usize) {
        let Some(new) = self.members.get(index) else {
            return;
        };
        let Some(vm) = &new.vm else {
            return;
        };
        tracing::info!("VM {} joins", new.name);
        for member in &self.members {
            vm.introduce(member.id, &member.doorbell);
        }
    }

    fn lose(&mut self, index: usize, why: &DirectError) -> Result<(), DirectError> {
        let Some(member) = self.members.get_mut(index) else {
            return Ok(());
        };
        tracing::info!("VM {} is gone: {why}", member.name);
        member.vm = None;
        let id = member.id;
        self.control.leave(id.into())?;
        self.ring();
        Ok(())
    }

    /// Have every guest look at the window.
    fn ring(&self) {
        for member in &self.members {
            member.doorbell.ring();
        }
    }

    /// Every member sees every other, and nobody who is gone.
    fn show(&mut self) {
        for index in 0..self.members.len() {
            let (before, rest) = self.members.split_at_mut(index);
            let Some((member, after)) = rest.split_first_mut() else {
                continue;
            };
            let Some(vm) = &mut member.vm else {
                continue;
            };
            for peer in before.iter().chain(after.iter()) {
                let peers = peer.vm.as_ref().map(|vm| (peer.name.as_str(), &vm.ram));
                if let Err(error) = vm.see(peer.id, peers) {
                    tracing::warn!("VM {} and {}: {error}", member.name, peer.name);
                }
            }
        }
    }

    /// Until a monitor says something, or it is time to look for VMs.
    fn wait(&self) -> Result<(), DirectError> {
        let vms = self.members.iter().filter_map(|member| member.vm.as_ref());
        let mut descriptors: Vec<_> = vms
            .map(|vm| PollFd::from_borrowed_fd(vm.as_fd(), PollFlags::IN))
            .collect();
        let limit = Timespec::try_from(LOOK).unwrap_or_default();
        match poll(&mut descriptors, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            result => io(result, || "wait for QEMU".to_owned()).map(drop),
        }
    }

    fn close(&mut self) -> Result<(), DirectError> {
        for member in &self.members {
            self.control.leave(member.id.into())?;
        }
        self.ring();
        for member in &mut self.members {
            let stripped = member.vm.as_mut().map(|vm| vm.strip());
            if let Some(Err(error)) = stripped {
                tracing::warn!("VM {}: {error}", member.name);
            }
        }
        let end = Instant::now() + FAREWELL;
        loop {
            for member in &mut self.members {
                let done = member.vm.as_mut().map(|vm| vm.is_bare().unwrap_or(true));
                if done == Some(true) {
                    member.vm = None;
                }
            }
            let left = self.members.iter().filter(|member| member.vm.is_some());
            let left: Vec<_> = left.map(|member| member.name.as_str()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let text = format!(
                    "these VMs keep views that were taken away: {}",
                    left.join(", ")
                );
                return Err(DirectError::Memory(text));
            }
            self.wait()?;
        }
    }
}
