//! `vicinity direct`.

use std::path::Path;

use clap::Subcommand;

use super::print;
use crate::failure::Failure;
use crate::{direct, qemu_args};

#[derive(Debug, Subcommand)]
pub(super) enum Direct {
    /// Join VMs until SIGINT or SIGTERM, without a daemon; each can read all memory of the others
    Serve {
        /// Names of the VMs
        #[arg(required = true, value_parser = direct::vm, value_name = "NAME")]
        vms: Vec<String>,
    },
    /// List the daemon's trust groups, and how their VMs are
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a VM leave its group, for as long as it runs, so that it can migrate
    Leave {
        /// Name of the VM
        #[arg(value_parser = direct::vm)]
        vm: String,
    },
    /// Let a VM that left join again
    Join {
        /// Name of the VM
        #[arg(value_parser = direct::vm)]
        vm: String,
    },
    /// Print QEMU's options for a VM that is to be joined, beside those of its port
    QemuArgs {
        /// Name of the VM
        #[arg(value_parser = direct::vm)]
        vm: String,
        /// Root ports for so many other members, which a `q35` machine needs
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..i64::from(::direct::layout::MEMBERS)), value_name = "MEMBERS")]
        ports: u16,
        /// Memory of the largest of them
        #[arg(long, default_value = "512M", value_parser = direct::bytes, value_name = "SIZE", requires = "ports")]
        memory: u64,
        /// As JSON: an array of words
        #[arg(long)]
        json: bool,
    },
}

impl Direct {
    pub(super) fn run(self, runtime_dir: &Path) -> Result<(), Failure> {
        match self {
            Self::Serve { vms } => direct::serve(runtime_dir, &vms),
            Self::QemuArgs {
                vm,
                ports,
                memory,
                json,
            } => {
                let text = direct::qemu_args(runtime_dir, &vm, ports, memory);
                print(&qemu_args::words_of(&text, json))
            }
            Self::List { json } => print(&direct::list(runtime_dir, json)?),
            Self::Leave { vm } => direct::leave(runtime_dir, &vm),
            Self::Join { vm } => Ok(direct::join(runtime_dir, &vm)?),
        }
    }
}
