//! `vicinity message`.

mod info;
pub(crate) mod join;
pub(crate) mod measure;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use message::remote::{INTERFACE_VARIABLE, Way, open_board};
use message::{Board, MessageError, perf};

use super::failure::Failure;
use super::qemu_args;
use crate::commands::output::print;
use crate::message_uplink::system_name;

/// A plane in the process of the command.
#[derive(Args, Clone, Debug)]
pub(crate) struct InterfaceArgs {
    /// Interface to other hosts, which this process serves itself; needs CAP_NET_RAW [default: the one that the daemon
    /// offers; '': none]
    #[arg(long, env = INTERFACE_VARIABLE, hide_env_values = true, value_name = "INTERFACE")]
    interface: Option<String>,
    /// Name of this host for other hosts [default: the host name]
    #[arg(long, requires = "interface", value_parser = join::host_name, value_name = "NAME")]
    host_name: Option<String>,
}

impl InterfaceArgs {
    fn board(&self, runtime_dir: &Path) -> Result<Board, MessageError> {
        let way = Way::chosen(self.interface.as_deref());
        let name = self.host_name.clone().unwrap_or_else(system_name);
        open_board(runtime_dir, way, &name)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Message {
    /// Answer `ping` and `perf` of other processes until SIGINT or SIGTERM
    Answer {
        /// Number of the endpoint; without it, the first free one
        #[arg(long, value_name = "NUMBER")]
        endpoint: Option<u32>,
        /// Poll for the messages of `ping`, as MPI libraries do, instead of waiting
        #[arg(long)]
        poll: bool,
        #[command(flatten)]
        interface: InterfaceArgs,
    },
    /// Show this host's or VM's board, and the daemon's members
    Info {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the counters of the daemon's members
    Counters {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a message plane without a daemon, for VMs and this host, until SIGINT or SIGTERM
    Serve {
        /// Members: VMs, or `host`; NAME=GROUP for a member of a trust group, whose members share memory
        #[arg(required = true, value_parser = join::member, value_name = "NAME")]
        members: Vec<message::remote::Member>,
        #[command(flatten)]
        way: join::UplinkArgs,
    },
    /// Run the gateway of this VM until SIGINT or SIGTERM; needs root
    Join {
        /// Run the gateway for processes of the host instead, as the member with this socket
        #[arg(long, value_name = "FILE")]
        socket: Option<PathBuf>,
        /// Unix group whose users may use the message plane, by name or number [default: root only]
        #[arg(long, value_parser = crate::unix_group::number, value_name = "GROUP")]
        unix_group: Option<u32>,
    },
    /// Print QEMU's options for a VM that is a member
    QemuArgs {
        /// Name of the VM
        vm: String,
        /// Print a JSON array of the words
        #[arg(long)]
        json: bool,
    },
    /// Measure round trips to an endpoint that runs `answer`
    Ping {
        /// Endpoint: 7; of another VM or host, web:7
        #[arg(value_name = "ENDPOINT")]
        peer: measure::EndpointName,
        /// Length of a message in bytes
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(..=i64::from(perf::LONGEST)))]
        length: u32,
        /// Number of round trips
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=measure::MAX_ROUND_TRIPS))]
        count: u32,
        /// Poll for the messages, as MPI libraries do, instead of waiting
        #[arg(long)]
        poll: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        interface: InterfaceArgs,
    },
    /// Measure latency, message rate and bandwidth to an endpoint that runs `answer`
    Perf {
        /// Endpoint: 7; of another VM or host, web:7
        #[arg(value_name = "ENDPOINT")]
        peer: measure::EndpointName,
        /// Lengths of messages in bytes
        #[arg(long, value_delimiter = ',', default_values_t = measure::LENGTHS, value_parser = clap::value_parser!(u32).range(..=i64::from(perf::LONGEST)))]
        lengths: Vec<u32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        interface: InterfaceArgs,
    },
}

impl Message {
    pub(crate) fn run(&self, runtime_dir: &Path) -> Result<(), Failure> {
        match self {
            Self::Answer {
                endpoint,
                poll,
                interface,
            } => measure::answer(&interface.board(runtime_dir)?, *endpoint, *poll),
            Self::Info { json } => print(&info::info(runtime_dir, *json)?),
            Self::Counters { json } => print(&info::counters(runtime_dir, *json)?),
            Self::Serve { members, way } => join::serve(runtime_dir, members, way),
            Self::Join { socket, unix_group } => {
                join::join(runtime_dir, socket.as_deref(), *unix_group)
            }
            Self::QemuArgs { vm, json } => {
                let options = join::qemu_args(runtime_dir, vm);
                print(&qemu_args::lines(&options, *json))
            }
            Self::Ping {
                peer,
                length,
                count,
                poll,
                json,
                interface,
            } => print(&measure::ping(
                &interface.board(runtime_dir)?,
                peer,
                (*length, *count),
                *poll,
                *json,
            )?),
            Self::Perf {
                peer,
                lengths,
                json,
                interface,
            } => print(&measure::measure(
                &interface.board(runtime_dir)?,
                peer,
                lengths,
                *json,
            )?),
        }
    }
}
