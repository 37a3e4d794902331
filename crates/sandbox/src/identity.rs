//! Changes the user from root to `nobody`.

use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The id of the user and the group `nobody`, which own no files.
const NOBODY: u32 = 65534;

/// The capability that the next stage needs where only privileged processes may make user namespaces.
const RETAINED_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Changes the user and group to `nobody`, if the process runs as root.
pub(crate) fn enter() -> Result<(), String> {
    if !geteuid().is_root() {
        return Ok(());
    }
    become_nobody().map_err(|error| format!("cannot become user {NOBODY}: {error}"))
}

fn become_nobody() -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    // A service manager may have started the process without this capability.
    let retained = RETAINED_CAPABILITIES & capabilities(None)?.permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: retained,
            permitted: retained,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    // A change of user makes root the owner of `/proc/self`, to which the next stage writes.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}
