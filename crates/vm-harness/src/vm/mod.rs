//! Virtual machines: their specification, QEMU process, monitor, guest agent and migration.

mod agent;
mod instance;
mod jsonline;
mod migration;
mod qmp;
mod spec;

pub use agent::Output;
pub use instance::{Job, Vm};
pub use migration::{Migration, MigrationCost};
pub use qmp::Qmp;
pub use spec::{Link, Nic, SMP_MAXCPUS_2, Spec};
