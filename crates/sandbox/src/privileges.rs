//! No privileges, and no way to get any.

use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Give up every capability. From here on the process dies with the one that started it.
pub(crate) fn enter() -> Result<(), String> {
    give_up().map_err(|error| format!("capabilities cannot be given up: {error}"))?;
    let left = capabilities(None).map_err(|error| error.to_string())?;
    match (left.effective | left.permitted | left.inheritable).is_empty() {
        true => Ok(()),
        false => Err(format!("capabilities are left: {:?}", left.permitted)),
    }
}

fn give_up() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        // Refused without the capability to do it, or for a capability this kernel does not know.
        // Nothing comes of the set anyway: no program can be run that would draw from it.
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
    // The kernel forgets this wish when a process changes its user: not before here.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Guests' memory is in no core dump, and no process of the same user may look at it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
