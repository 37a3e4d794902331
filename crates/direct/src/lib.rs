//! The direct channel's host side: who shares memory with whom. No packet passes through here.
//!
//! # Theory of operation
//!
//! A *group* is a trust group: VMs of one owner. Each member's RAM is a sealed memfd of its QEMU
//! ([`ram`]). By QEMU's monitor ([`qmp`]) every other member gets it as a read-only `ivshmem-plain`
//! device, a *view*, and each member gets the group's *control window* as an `ivshmem-doorbell`
//! device: rings in which members name pages of their own RAM to each other ([`layout`]). The
//! guests' module (`guest/direct`) makes an Ethernet device of that. Doorbells go from VM to VM:
//! every QEMU is given every member's event descriptor, so this process is in no data path, and
//! when it ends, packets go on.
//!
//! A view does not tell whose it is, and does not need to: each guest has a beacon in its RAM, and
//! its peers look for it. What guests cannot know is which part of a VM's RAM file is where in its
//! guest-physical memory; the host asks QEMU and writes it into the window.
//!
//! [`Group`] serves it. It looks for members that are not there, lets them join, and notices
//! their end by the end of their monitor. Then it ends their sessions in the window itself, so no
//! member waits for a VM that is gone, and takes their views away. What may fail: a QEMU, a guest
//! that does not let go of a view (it stays until it does), a VM whose memory cannot be shared
//! (it is left out, with the reason).
//!
//! A member may *leave* while it runs, because it is to migrate: guests are told to send to it
//! another way, then its sessions end, and its views and its window are unplugged. QEMU needs
//! [`qemu_fd_workaround`] after that.
//!
//! Under the policy `auto` the host tells two members to use their ordinary NICs while shared memory
//! does not pay ([`auto`]).
//!
//! The window and the doorbells ([`Parts`]) may be another process's. Then whoever serves the group
//! may be killed: its successor is given the same parts, sees in each QEMU what is plugged in
//! ([`open_files`] tells whose memory a view shows), and goes on from there, without a word to the guests.
#![forbid(unsafe_code)]

mod auto;
mod control;
mod error;
mod group;
pub mod layout;
mod limits;
mod member;
mod open_files;
mod parts;
mod paths;
mod policy;
mod ports;
mod qemu_fd_workaround;
mod qmp;
pub mod ram;
mod vm;

pub use error::DirectError;
pub use group::{Group, Standing};
pub use parts::{Parts, Seat};
pub use paths::monitor;
pub use policy::{Policies, Policy};
pub use ports::root_ports;
pub use qmp::Qmp;

use error::io;
