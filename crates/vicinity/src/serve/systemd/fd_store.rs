//! Spaces' memory in the service manager's file descriptor store. Files that a VM published outlive
//! the supervisor, however the supervisor ends, and the next supervisor serves them.
//!
//! Protocol: systemd's `sd_notify(3)` (`FDSTORE=1`, `FDNAME=`, `FDPOLL=0`, `FDSTOREREMOVE=1`); the service
//! manager returns the descriptors by `sd_listen_fds_with_names(3)` ([`super::handed`]). systemd keeps its
//! copy of a descriptor that it returns, so the supervisor does not store it again.
//!
//! The name of a descriptor consists of its kind, the version of the layout, and the VM. The version is in
//! the name and not in the memory, because a process that communicates with a guest writes the memory. This
//! module does not read the memory itself. It checks only its kind and its length.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memory_plane::space_memory;
use rustix::fs::OFlags;
use sd_notify::NotifyState;
use space::store::{LAYOUT_VERSION, ledger_bytes};

use crate::config::{MIN_SPACE_SLOTS, SLOT_BYTES};

/// Prefix of the names of all descriptors that any version of this program stores.
const PREFIX: &str = "vicinity-";

/// systemd's name for a descriptor that was stored without a name.
const NAMELESS: &str = "stored";

/// The memory of a space.
#[derive(Debug)]
pub(in crate::serve) struct Memory {
    pub(in crate::serve) slots: File,
    pub(in crate::serve) ledger: File,
    /// Number of slots for which the memory has room.
    pub(in crate::serve) most: u32,
    /// The memory came from the store, with its contents.
    pub(in crate::serve) came_back: bool,
}

/// Why descriptors from the store are not the memory of a space.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidMemory {
    #[error("the memory of its slots or of its ledger is missing")]
    Half,
    #[error("it is not a sealed memfd that can be read and written, so Vicinity did not create it")]
    Kind,
    #[error("{slots} bytes of slots and {ledger} bytes of ledger do not match")]
    Length { slots: u64, ledger: u64 },
}

/// The store, and the descriptors that came from it.
#[derive(Debug, Default)]
pub(in crate::serve) struct FdStore {
    came_back: BTreeMap<String, OwnedFd>,
}

impl FdStore {
    /// Returns a store with the descriptors that the service manager returned at the start, by
    /// name. If a name occurs twice, keeps one of the descriptors.
    pub(in crate::serve) fn new(came_back: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self {
            came_back: came_back.into_iter().collect(),
        }
    }

    /// Returns whether a descriptor of this name came from the store.
    pub(in crate::serve) fn is_stored_name(name: &str) -> bool {
        name.starts_with(PREFIX) || name == NAMELESS
    }

    /// Returns whether there is a service manager that can keep descriptors.
    pub(in crate::serve) fn is_available() -> bool {
        std::env::var_os("NOTIFY_SOCKET").is_some()
    }

    /// Takes the memory of a VM's space that came from the store, if it is complete and valid.
    /// Removes invalid memory from the store.
    pub(in crate::serve) fn take(&mut self, vm: &str) -> Option<Memory> {
        let [slots, ledger] = names(vm).map(|name| self.came_back.remove(&name));
        if slots.is_none() && ledger.is_none() {
            return None;
        }
        match validate(slots, ledger) {
            Ok(memory) => Some(memory),
            Err(unfit) => {
                tracing::error!(
                    "space of {vm}: the memory that the service manager stored is not usable, so the space \
                        starts empty: {unfit}"
                );
                self.remove(vm);
                None
            }
        }
    }

    /// Stores a space's memory in the service manager.
    pub(in crate::serve) fn insert(&self, vm: &str, memory: [BorrowedFd<'_>; 2]) {
        for (name, fd) in names(vm).iter().zip(memory) {
            // Without `FDPOLL=0`, systemd would poll the descriptor, which a memfd does not
            // support.
            let states = [
                NotifyState::FdStore,
                NotifyState::FdName(name),
                NotifyState::Custom("FDPOLL=0"),
            ];
            if let Err(error) = sd_notify::notify_with_fds(&states, &[fd]) {
                tracing::error!(
                    "space of {vm}: cannot store its memory in the service manager, so its published files are \
                        lost when this process ends: {error}"
                );
            }
        }
    }

    /// Removes the memory of a removed space from the service manager's store.
    pub(in crate::serve) fn remove(&self, vm: &str) {
        for name in names(vm) {
            remove(&name);
        }
    }

    /// Removes all descriptors that no configured space has taken from the store.
    pub(in crate::serve) fn remove_unclaimed(&mut self) {
        for (name, _) in std::mem::take(&mut self.came_back) {
            tracing::warn!(
                "removed {name} from the service manager's store: it belongs to a space that is not in the \
                    configuration, or to another version of Vicinity"
            );
            remove(&name);
        }
    }
}

/// Returns the names of the slots' and the ledger's memory. A VM's name has at most 64 characters, and
/// systemd refuses none of them (`fdname_is_valid`: printable ASCII without `:`, at most 255).
fn names(vm: &str) -> [String; 2] {
    ["slots", "ledger"].map(|kind| format!("{PREFIX}space-{LAYOUT_VERSION}-{kind}-{vm}"))
}

fn remove(name: &str) {
    let states = [NotifyState::FdStoreRemove, NotifyState::FdName(name)];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!(%error, "cannot remove {name} from the service manager's store");
    }
}

fn validate(slots: Option<OwnedFd>, ledger: Option<OwnedFd>) -> Result<Memory, InvalidMemory> {
    let (slots, ledger) = slots.zip(ledger).ok_or(InvalidMemory::Half)?;
    let length = |fd: &OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(fd).map_err(|_| InvalidMemory::Kind)?;
        let both_ways = flags & OFlags::RWMODE == OFlags::RDWR;
        let length = space_memory::sealed_length(fd.as_fd()).filter(|_| both_ways);
        length.ok_or(InvalidMemory::Kind)
    };
    let lengths = (length(&slots)?, length(&ledger)?);
    let most = most(lengths).ok_or(InvalidMemory::Length {
        slots: lengths.0,
        ledger: lengths.1,
    })?;
    Ok(Memory {
        slots: slots.into(),
        ledger: ledger.into(),
        most,
        came_back: true,
    })
}

/// Returns the number of slots for which memory of these lengths has room; `None` if the lengths
/// are not those of a space.
fn most((slots, ledger): (u64, u64)) -> Option<u32> {
    let most = u32::try_from(slots / u64::from(SLOT_BYTES)).ok()?;
    let whole = slots % u64::from(SLOT_BYTES) == 0;
    (whole && most >= MIN_SPACE_SLOTS && ledger_bytes(most) == ledger).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(slots: u64, ledger: u64) -> [OwnedFd; 2] {
        [slots, ledger].map(|bytes| space_memory::create("test", bytes).unwrap().into())
    }

    fn of(most: u32) -> [OwnedFd; 2] {
        memory(u64::from(most) * u64::from(SLOT_BYTES), ledger_bytes(most))
    }

    fn validation_error([slots, ledger]: [OwnedFd; 2]) -> InvalidMemory {
        validate(Some(slots), Some(ledger)).unwrap_err()
    }

    #[test]
    fn memory_comes_back_with_its_size() {
        let [slots, ledger] = of(96);
        assert_eq!(validate(Some(slots), Some(ledger)).unwrap().most, 96);
    }

    #[test]
    fn what_is_no_memory_of_a_space_is_refused() {
        let [slots, ledger] = of(16);
        assert_eq!(
            validate(Some(slots), None).unwrap_err(),
            InvalidMemory::Half
        );
        assert_eq!(
            validate(None, Some(ledger)).unwrap_err(),
            InvalidMemory::Half
        );
        let [slots, ledger] = of(16);
        assert!(matches!(
            validation_error([ledger, slots]),
            InvalidMemory::Length { .. }
        ));
        for (slots, ledger) in [(0, ledger_bytes(0)), (SLOT_BYTES.into(), ledger_bytes(1))] {
            assert!(matches!(
                validation_error(memory(slots, ledger)),
                InvalidMemory::Length { .. }
            ));
        }
        let [slots, _] = of(16);
        let [_, ledger] = of(17);
        assert!(matches!(
            validation_error([slots, ledger]),
            InvalidMemory::Length { .. }
        ));
        // A length that is not a multiple of a slot.
        let odd = memory(16 * u64::from(SLOT_BYTES) + 4096, ledger_bytes(16));
        assert!(matches!(
            validation_error(odd),
            InvalidMemory::Length { .. }
        ));
    }

    #[test]
    fn what_anybody_could_cut_off_is_refused() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let bytes = 16 * u64::from(SLOT_BYTES);
        let with = |seals| {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, bytes).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let fixed = SealFlags::SHRINK | SealFlags::GROW;
        for seals in [
            SealFlags::empty(),
            SealFlags::GROW,
            fixed,
            fixed | SealFlags::SEAL | SealFlags::FUTURE_WRITE,
        ] {
            let [_, ledger] = of(16);
            assert_eq!(
                validation_error([with(seals), ledger]),
                InvalidMemory::Kind,
                "{seals:?}"
            );
        }
        let [_, ledger] = of(16);
        let good = validate(Some(with(fixed | SealFlags::SEAL)), Some(ledger));
        assert_eq!(good.unwrap().most, 16);
    }

    #[test]
    fn descriptors_of_other_kinds_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * u64::from(SLOT_BYTES)).unwrap();
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        let [slots, _] = of(16);
        let read_only = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&slots));
        for other in [file.into(), pipe, File::open(read_only).unwrap().into()] {
            let [_, ledger] = of(16);
            assert_eq!(validation_error([other, ledger]), InvalidMemory::Kind);
        }
    }

    #[test]
    fn names_are_such_as_systemd_takes() {
        let longest = "x".repeat(switch::control::MAX_NAME);
        for vm in ["a", "a-b_c.d", &longest] {
            for name in names(vm) {
                assert!(FdStore::is_stored_name(&name));
                assert!(name.len() <= 255, "{name}");
                let printable = |byte: u8| (b' '..127).contains(&byte) && byte != b':';
                assert!(name.bytes().all(printable), "{name}");
            }
        }
        assert!(
            !FdStore::is_stored_name("vicinity.socket"),
            "systemd's own name of our socket unit"
        );
    }
}
