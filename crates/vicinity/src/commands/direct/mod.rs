//! `vicinity direct`.

mod trust_groups;

use std::path::Path;

use clap::Subcommand;

use super::failure::Failure;
use super::{byte_size, qemu_args};
use crate::commands::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum Direct {
    /// Connect VMs without a daemon until SIGINT or SIGTERM; each can read all memory of the others
    Serve {
        /// Names of the VMs
        #[arg(required = true, value_parser = trust_groups::vm, value_name = "NAME")]
        vms: Vec<String>,
    },
    /// List the daemon's trust groups, and the state of their VMs
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a VM leave its group until it ends or `join`, so that it can migrate
    Leave {
        /// Name of the VM
        #[arg(value_parser = trust_groups::vm)]
        vm: String,
    },
    /// Make a VM that left join its group again
    Join {
        /// Name of the VM
        #[arg(value_parser = trust_groups::vm)]
        vm: String,
    },
    /// Print QEMU's options for a member of a trust group, in addition to those of its port
    QemuArgs {
        /// Name of the VM
        #[arg(value_parser = trust_groups::vm)]
        vm: String,
        /// Number of other members, for which a `q35` machine needs root ports
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..i64::from(::direct::layout::MEMBERS)), value_name = "MEMBERS")]
        ports: u16,
        /// Memory of the largest of these members
        #[arg(long, default_value = "512M", value_parser = byte_size::bytes, value_name = "SIZE", requires = "ports")]
        memory: u64,
        /// Print a JSON array of the words
        #[arg(long)]
        json: bool,
    },
}

impl Direct {
    pub(crate) fn run(self, runtime_dir: &Path) -> Result<(), Failure> {
        match self {
            Self::Serve { vms } => trust_groups::serve(runtime_dir, &vms),
            Self::QemuArgs {
                vm,
                ports,
                memory,
                json,
            } => {
                let options = trust_groups::qemu_args(runtime_dir, &vm, ports, memory);
                print(&qemu_args::lines(&options, json))
            }
            Self::List { json } => print(&trust_groups::list(runtime_dir, json)?),
            Self::Leave { vm } => trust_groups::leave(runtime_dir, &vm),
            Self::Join { vm } => Ok(trust_groups::join(runtime_dir, &vm)?),
        }
    }
}
