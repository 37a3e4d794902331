//! `vicinity network`, and `vicinity port`.

mod fdb;
pub(crate) mod list;

use std::path::Path;

use clap::Subcommand;

use super::configuration;
use super::configuration::{KeyValue, Target};
use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Port {
    /// List all, with their state and counters
    List {
        /// Print JSON, with every counter
        #[arg(long)]
        json: bool,
    },
    /// Show one, with every counter
    Show {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
    },
    /// Add a port to a network, like a `[[network.port]]` in the configuration file
    Add {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
        /// Keys of the configuration, like vlan=10
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<KeyValue>,
    },
    /// Change keys of a port; its VM stays connected unless `socket` or `mode` change
    Set {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
        /// Keys to set; KEY= removes a key
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<KeyValue>,
    },
    /// Remove a port and disconnect its VM
    Remove {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    /// List all, with their state and counters
    List {
        /// Print JSON, with every counter
        #[arg(long)]
        json: bool,
    },
    /// Show one, with every counter
    Show {
        /// The network's name
        network: String,
        /// List the entries of its FDB: address, VLAN, port, pinned or learnt, and since when
        #[arg(long)]
        fdb: bool,
        /// Print the list of --fdb as JSON
        #[arg(long, requires = "fdb")]
        json: bool,
    },
    /// Add a network, like a `[[network]]` in the configuration file
    Add {
        /// The network's name
        network: String,
        /// Keys of the configuration, like accept=true
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<KeyValue>,
    },
    /// Change keys of a network
    Set {
        /// The network's name
        network: String,
        /// Keys to set; KEY= removes a key
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<KeyValue>,
    },
    /// Remove a network with its ports
    Remove {
        /// The network's name
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
            Self::Show {
                network,
                fdb: true,
                json,
            } => fdb::list(runtime_dir, &network, json)?,
            Self::Show { network, .. } => list::network(runtime_dir, &network)?,
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
