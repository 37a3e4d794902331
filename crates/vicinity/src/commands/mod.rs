//! The commands. The module of each command contains its command line options and its implementation.
//! Commands that need a daemon use [`crate::client`]. [`failure`] has their errors and exit codes.

pub(crate) mod bench;
pub(crate) mod byte_size;
pub(crate) mod capture;
pub(crate) mod configuration;
pub(crate) mod demo;
pub(crate) mod direct;
pub(crate) mod doctor;
pub(crate) mod failure;
pub(crate) mod guest_memory;
pub(crate) mod lab;
pub(crate) mod libvirt_xml;
pub(crate) mod message;
pub(crate) mod mpi_hosts;
pub(crate) mod network;
pub(crate) mod nic;
pub(crate) mod output;
pub(crate) mod qemu_args;
pub(crate) mod qemu_version;
pub(crate) mod reference;
pub(crate) mod selftest;
pub(crate) mod signals;
pub(crate) mod space;
pub(crate) mod top;
pub(crate) mod vsock;
pub(crate) mod web;
