//! Drops all privileges, and every way to gain new ones.

use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Drops every capability. From here on the kernel kills the process when its parent ends.
pub(crate) fn enter() -> Result<(), String> {
    drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    let left = capabilities(None).map_err(|error| error.to_string())?;
    match (left.effective | left.permitted | left.inheritable).is_empty() {
        true => Ok(()),
        false => Err(format!("capabilities remain: {:?}", left.permitted)),
    }
}

fn drop_capabilities() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        // The kernel refuses this without the capability to do it, and for a capability that it does not
        // know. The bounding set matters to programs that are executed, and none can be.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    // The kernel clears this setting when a process changes its user, so it is set after that.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // No core dump contains guests' memory, and no process of the same user may trace this one.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
