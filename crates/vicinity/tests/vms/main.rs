//! Real VMs on a real `vicinity serve`: unmodified Debian guests, QEMU, stock virtio-net.
//!
//! Needs root, QEMU and `mmdebstrap`, as the lab does. The guest image is built once and kept below
//! the target folder. Each test uses the machine alone while it runs ([`rig::Rig`] holds a lock),
//! so the tests run one after another whatever `--test-threads` says: two emulated guests at a time
//! are enough for two CPUs. No test measures time; every limit only ends a test that hangs. A
//! failed test prints its steps; guests' consoles and QEMU's messages are in `target/tmp/vms/logs`.
//! The target folder must be on a disk, not on tmpfs ([`bad`]).
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod arp;
mod bad;
mod churn;
mod counters;
mod direct;
mod direct_churn;
mod direct_group;
mod direct_plug;
mod direct_routes;
mod guard;
mod guest;
mod kinds;
mod load;
mod many;
mod memory_type;
mod message;
mod message_many;
mod migration;
mod migration_blockers;
mod mpi;
mod mpi_hosts;
mod mpi_programs;
mod mpich;
mod queues;
mod restart;
mod rig;
mod sockets;
mod sockets_everyday;
mod sockets_figures;
mod sockets_figures_one;
mod sockets_peer;
mod sockets_programs;
mod space;
mod space_lent;
mod space_nginx;
mod space_push;
mod ssh;
mod study;
mod talk;
mod tiny;
mod top;
mod uplink;
mod vsock;
