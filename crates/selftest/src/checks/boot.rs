//! Boots of VMs with different firmware and memory, and the region of the message plane in each.

use vm_harness::error::Result;
use vm_harness::message_region::Mapping;

use crate::guest::{Guest, require_clean_kernel, sh};
use crate::outcome::Outcome;
use crate::region::{self, Joined};
use crate::testbed::Testbed;

/// What the list of memory types means with UEFI firmware whose MTRRs call all uncached but RAM. The list has the
/// kernel's own mapping of the module's pages (`memremap_pages` in Linux, `mm/memremap.c`), which follows the MTRRs. The
/// mappings of programs do not: `vm_insert_page` takes the type of the program's mapping.
const UNCACHED_MTRRS: &str = "with this firmware's MTRRs the guest's kernel has its own mapping of the region uncached; \
    those of programs are write-back all the same, and only the load times under KVM show that";

/// The first address above the memory that 32-bit addresses reach.
const FOUR_GIB: u64 = 4 << 30;

pub(super) fn pc_5g(bed: &mut Testbed) -> Result<Outcome> {
    boot(bed, Guest::Two)
}

pub(super) fn q35_1g(bed: &mut Testbed) -> Result<Outcome> {
    boot(bed, Guest::One)
}

pub(super) fn q35_ovmf_1g(bed: &mut Testbed) -> Result<Outcome> {
    let outcome = boot(bed, Guest::Three)?;
    // No later check uses this VM.
    drop(bed.take(Guest::Three));
    Ok(outcome)
}

fn boot(bed: &mut Testbed, guest: Guest) -> Result<Outcome> {
    let took = bed.boot(guest)?;
    let vm = bed.vm(guest)?;
    let mut outcome = Outcome::pass().figure("boot", took.as_secs_f64(), "s");

    // sysfs maps a BAR uncached. Processors differ in whether they obey.
    let joined = region::join(vm)?;
    let mapping = Mapping::of(vm)?;
    region::leave(vm)?;
    outcome = describe(outcome, "sysfs", &joined, &mapping);
    if !bed.has_modules() {
        return require_clean_kernel(
            outcome.note("the module `vicinity_wake` was not tried: it could not be built"),
            vm,
        );
    }

    region::load_module(vm)?;
    let joined = region::join(vm)?;
    let mapping = Mapping::of(vm)?;
    outcome = describe(outcome, "module", &joined, &mapping);
    let is_write_back = mapping.memory_types == ["write-back"];
    if !is_write_back {
        let registers = sh(vm, "tr '\\n' ';' </proc/mtrr")?;
        outcome = outcome.note(format!("MTRRs: {registers}"));
    }
    if !is_write_back && guest == Guest::Three {
        outcome = outcome.note(UNCACHED_MTRRS);
    }
    let outcome = outcome
        .require(is_write_back || guest == Guest::Three, || {
            format!(
                "with the module the guest's kernel maps the region {}, not write-back",
                mapping.memory_types.join(", ")
            )
        })
        .require(mapping.address >= FOUR_GIB, || {
            format!(
                "with the module the region is at {:#x}, below 4 GiB",
                mapping.address
            )
        })
        .require(!joined.is_uncached, || {
            "with the module loads from the region bypass the caches".to_owned()
        });
    require_clean_kernel(outcome, vm)
}

/// Adds what a guest says of the region, as mapped by `way`.
fn describe(outcome: Outcome, way: &str, joined: &Joined, mapping: &Mapping) -> Outcome {
    let types = mapping.memory_types.join(", ");
    let mut note = format!(
        "{way}: the region is at {:#x}, mapped {types}",
        mapping.address
    );
    if joined.is_uncached {
        note.push_str("; the processor obeys, so messages are slow this way");
    }
    let outcome = outcome.note(note);
    match joined.loads {
        Some(loads) => outcome
            .figure(
                format!("load from the region, {way}"),
                f64::from(loads.region_ns),
                "ns",
            )
            .figure(
                format!("load from other memory, {way}"),
                f64::from(loads.private_ns),
                "ns",
            ),
        None => outcome,
    }
}
