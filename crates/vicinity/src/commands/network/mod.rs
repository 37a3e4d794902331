//! `vicinity network`, and `vicinity port`.

pub(crate) mod list;

use std::path::Path;

use clap::Subcommand;

use super::configuration;
use super::configuration::{KeyValue, Target};
use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Port {
    /// List them, with their state and figures
    List {
        /// As JSON, with every figure
        #[arg(long)]
        json: bool,
    },
    /// Show one, with every figure
    Show {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
    },
    /// Add one to a network, as a `[[network.port]]` in the file would
    Add {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
        /// What it has: the configuration's keys and values, like vlan=10
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<KeyValue>,
    },
    /// Change one; its VM stays connected unless `socket` or `mode` change
    Set {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
        /// What is new; KEY= takes a key away
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<KeyValue>,
    },
    /// Remove one; its VM is disconnected
    Remove {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    /// List them, with their state and figures
    List {
        /// As JSON, with every figure
        #[arg(long)]
        json: bool,
    },
    /// Show one, with every figure
    Show {
        /// Its name
        network: String,
    },
    /// Add one, as a `[[network]]` in the file would
    Add {
        /// Its name
        network: String,
        /// What it has: the configuration's keys and values, like accept=true
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<KeyValue>,
    },
    /// Change one
    Set {
        /// Its name
        network: String,
        /// What is new; KEY= takes a key away
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<KeyValue>,
    },
    /// Remove one, with its ports
    Remove {
        /// Its name
        network: String,
    },
}

impl Port {
    pub(crate) fn run(self, runtime_dir: &Path) -> Result<String, Failure> {
        Ok(match self {
            Self::List { json } => list::ports(runtime_dir, json)?,
            Self::Show { network, vm } => list::port(runtime_dir, &network, &vm)?,
            Self::Add { network, vm, pairs } => {
                configuration::add(runtime_dir, Target::Port(&network, &vm), &pairs)?
            }
            Self::Set { network, vm, pairs } => {
                configuration::set(runtime_dir, Target::Port(&network, &vm), &pairs)?
            }
            Self::Remove { network, vm } => {
                configuration::remove(runtime_dir, Target::Port(&network, &vm))?
            }
        })
    }
}

impl Network {
    pub(crate) fn run(self, runtime_dir: &Path) -> Result<String, Failure> {
        Ok(match self {
            Self::List { json } => list::networks(runtime_dir, json)?,
            Self::Show { network } => list::network(runtime_dir, &network)?,
            Self::Add { network, pairs } => {
                configuration::add(runtime_dir, Target::Network(&network), &pairs)?
            }
            Self::Set { network, pairs } => {
                configuration::set(runtime_dir, Target::Network(&network), &pairs)?
            }
            Self::Remove { network } => {
                configuration::remove(runtime_dir, Target::Network(&network))?
            }
        })
    }
}
