//! A place in a group, and how far the VM in it is in joining or leaving.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::DirectError;
use crate::control::Control;
use crate::parts::Seat;
use crate::vm::{Found, Vm};

/// How long guests' agents have to route around a VM that leaves, before its packets are lost.
const GRACE: Duration = Duration::from_secs(1);

/// A VM's place.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) id: u16,
    monitor: PathBuf,
    /// Where its QEMU connects for the window.
    socket: PathBuf,
    pub(crate) vm: Option<Vm>,
    pub(crate) stage: Stage,
    /// It is to stay out, until it is told otherwise or ends.
    pub(crate) away: bool,
    /// Why it is not where it should be, told once.
    trouble: Option<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has nothing of the group; or there is no VM.
    Out,
    /// It exchanges packets.
    In,
    /// It still does, but nobody is to begin anything new, since then.
    Leaving(Instant),
    /// What it has is being taken away.
    Stripping,
}

impl Member {
    pub(crate) fn new(folder: &Path, name: &str, id: u16) -> Self {
        Self {
            name: name.to_owned(),
            id,
            monitor: crate::paths::monitor(folder, name),
            socket: crate::paths::socket(folder, name),
            vm: None,
            stage: Stage::Out,
            away: false,
            trouble: None,
        }
    }

    /// Whether it has, and is shown to the others.
    pub(crate) fn is_in(&self) -> bool {
        self.vm.is_some() && matches!(self.stage, Stage::In | Stage::Leaving(_))
    }

    /// Why it is not where it should be, or does not see whom it should.
    pub(crate) fn trouble(&self) -> Option<String> {
        let of_vm = || self.vm.as_ref().and_then(Vm::trouble);
        self.trouble.clone().or_else(of_vm)
    }

    /// Go on; whether others have to look at the window. Trouble is kept and told.
    pub(crate) fn advance(&mut self, seats: &[Seat], control: &Control) -> bool {
        let before = self.stage;
        match self.try_advance(seats, control) {
            Ok(()) => {
                if self.stage != before {
                    self.trouble = None;
                    tracing::debug!("VM {}: {:?}", self.name, self.stage);
                }
            }
            Err(error) => self.complain(&error),
        }
        self.stage != before
    }

    pub(crate) fn complain(&mut self, error: &DirectError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("VM {}: {text}", self.name);
            self.trouble = Some(text);
        }
    }

    fn try_advance(&mut self, seats: &[Seat], control: &Control) -> Result<(), DirectError> {
        let Some(vm) = &mut self.vm else {
            return self.look_for(control);
        };
        self.stage = match (self.stage, self.away) {
            (Stage::Out, false) => {
                control.enter(self.id.into(), mac(&self.name), &vm.ranges()?)?;
                vm.give_window(self.id, &self.socket, seats, control)?;
                tracing::info!("VM {} joins", self.name);
                Stage::In
            }
            (Stage::Out, true) => Stage::Out,
            (Stage::In, true) => Stage::Leaving(Instant::now()),
            (Stage::Leaving(_), false) => Stage::In,
            (Stage::Leaving(since), true) if since.elapsed() >= GRACE => {
                control.leave(self.id.into())?;
                Stage::Stripping
            }
            (Stage::Stripping, _) if vm.strip()? => {
                tracing::info!("VM {} has left", self.name);
                Stage::Out
            }
            (stage, _) => stage,
        };
        Ok(())
    }

    fn look_for(&mut self, control: &Control) -> Result<(), DirectError> {
        let Some((vm, found)) = Vm::connect(&self.monitor, control)? else {
            return Ok(());
        };
        self.vm = Some(vm);
        self.stage = match found {
            Found::Bare => Stage::Out,
            Found::Window => Stage::In,
            Found::Leftovers => Stage::Stripping,
        };
        Ok(())
    }

    /// Its QEMU has ended.
    pub(crate) fn lose(&mut self, control: &Control) -> Result<(), DirectError> {
        self.vm = None;
        self.stage = Stage::Out;
        self.away = false;
        self.trouble = None;
        control.leave(self.id.into())
    }
}

/// A locally administered address that depends on the name alone: FNV-1a, folded.
fn mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [.., a, b, c, d] = (hash ^ (hash >> 32)).to_be_bytes();
    [0x52, 0x56, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_hosts_own_and_stays() {
        assert_eq!(mac("a"), mac("a"));
        assert_ne!(mac("a"), mac("b"));
        assert_eq!(mac("a")[0] & 3, 2);
    }
}
