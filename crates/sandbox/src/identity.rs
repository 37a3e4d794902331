//! Root becomes nobody.

use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// What the next stage needs where user namespaces are not for everybody.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Change to nobody, unless we are no root anyway.
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
    // A service manager may have left us without.
    let kept = KEPT & capabilities(None)?.permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    // A change of user makes `/proc/self` root's; the next stage writes to it.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}
