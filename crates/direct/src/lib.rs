//! The host's side of the direct channel: manages which VMs share memory. No packet passes through
//! this process.
//!
//! # Theory of operation
//!
//! ```text
//!  QEMU of VM A                      this process                       QEMU of VM B
//! ┌──────────────────┐        ┌───────────────────────────┐        ┌──────────────────┐
//! │ RAM (memfd) ─────┼─ view ─┼── Group, one Member a VM ─┼─ view ─┼───── RAM (memfd) │
//! │ monitor (QMP) ◀──┼────────┼── vm, qmp                 ├────────┼──▶ monitor (QMP) │
//! │ ivshmem-doorbell │◀───────┼── GroupResources:         ├───────▶│ ivshmem-doorbell │
//! └──────────────────┘        │   control window, and one │        └──────────────────┘
//!                             │   doorbell a member       │
//!                             └───────────────────────────┘
//! ```
//!
//! A *group* is a trust group: VMs of one owner. Each member's RAM is a sealed memfd of its QEMU
//! ([`ram`]). Through QEMU's monitor ([`Qmp`]) this process gives every other member that RAM as a
//! read-only `ivshmem-plain` device, a *view*. It also gives each member the group's *control window*
//! as an `ivshmem-doorbell` device: rings in which members name pages of their own RAM to each other
//! ([`layout`]). The guests' kernel module (`guest/direct`) makes an Ethernet device of these devices.
//! Doorbells go from VM to VM: every QEMU receives every member's event descriptor. So this process is
//! in no data path, and packets continue to flow after it ends.
//!
//! A view does not say whose RAM it shows, and does not need to: each guest writes a beacon into its
//! RAM, and its peers search their views for it. Guests cannot know which part of a VM's RAM file is at
//! which guest-physical address; the host asks QEMU and writes the answer into the window.
//!
//! [`Group`] serves the group. It looks for members that are absent, lets them join, and notices that a
//! VM has ended when the connection to its monitor ends. Then it ends that VM's sessions in the window,
//! so that no member waits for the VM, and unplugs the views of its RAM a second later, with those of other VMs that
//! have ended (`deferred_unplug`). What may fail: a QEMU, a guest
//! that does not release a view (the view stays until the guest does), and a VM whose memory cannot be
//! shared (the group leaves it out and reports the reason).
//!
//! A member may *leave* while it runs, because it is to migrate: the host makes the guests send to it by another
//! path, then ends its sessions, and then unplugs its views and its window. After that QEMU needs
//! the work-around in `qemu_fd_workaround`.
//!
//! Under the policy [`Policy::Auto`] the host makes two members use their ordinary NICs while
//! shared memory is slower (`auto`).
//!
//! Another process may own the window and the doorbells ([`GroupResources`]). Then the process that serves the
//! group may be killed: its successor receives the same parts, finds out from each QEMU which devices are
//! plugged in (`open_files` finds the VM whose memory a view shows), and continues without a message to the guests.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//!
//! // QEMU's monitors are at /run/direct/a.qmp and /run/direct/b.qmp.
//! let names = ["a".to_owned(), "b".to_owned()];
//! let mut group = direct::Group::new(Path::new("/run/direct"), &names)?;
//! group.serve(|| true)?;
//! # Ok::<(), direct::DirectError>(())
//! ```
#![forbid(unsafe_code)]

mod auto;
mod chardevs;
mod control;
mod deferred_unplug;
mod error;
mod fd_sets;
mod group;
pub mod layout;
mod limits;
mod member;
mod open_files;
mod paths;
mod plug;
mod policy;
mod ports;
mod qemu_fd_workaround;
mod qmp;
pub mod ram;
mod resources;
mod vm;

pub use error::DirectError;
pub use group::{DirectSent, Group, MemberStatus};
pub use paths::monitor;
pub use policy::{Policies, Policy};
pub use ports::root_ports;
pub use qmp::Qmp;
pub use resources::{GroupResources, MemberResources};

use error::io;
