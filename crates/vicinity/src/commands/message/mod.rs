//! `vicinity message`.

mod info;
pub(crate) mod join;
pub(crate) mod measure;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use message::perf;

use super::failure::Failure;
use super::qemu_args;
use crate::commands::output::print;
use crate::runtime_paths::BOARD;

#[derive(Debug, Subcommand)]
pub(crate) enum Message {
    /// Answer `ping` and `perf` of other processes until SIGINT or SIGTERM
    Answer {
        /// Number of the endpoint; without it, the first that is free
        #[arg(long, value_name = "NUMBER")]
        endpoint: Option<u32>,
    },
    /// Tell what is on this board, and which members the daemon joins
    Info {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell what the members that the daemon joins have done
    Counters {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Join VMs, and this host, until SIGINT or SIGTERM
    Serve {
        /// A VM, or `host`; with a trust group, whose members share memory, as NAME=GROUP
        #[arg(required = true, value_parser = join::member, value_name = "NAME")]
        members: Vec<message::remote::Member>,
        #[command(flatten)]
        way: join::UplinkArgs,
    },
    /// Join this VM, from the inside, until SIGINT or SIGTERM; needs root
    Join {
        /// Join processes of the host in a VM's place, by that member's socket on the host
        #[arg(long, value_name = "FILE")]
        socket: Option<PathBuf>,
    },
    /// Print QEMU's options for a VM that is to be joined
    QemuArgs {
        /// Name of the VM
        vm: String,
        /// As JSON: an array of words
        #[arg(long)]
        json: bool,
    },
    /// Time round trips to an endpoint that answers
    Ping {
        /// The endpoint: 7, or of a VM or a host, web:7
        #[arg(value_name = "ENDPOINT")]
        peer: measure::EndpointName,
        /// Bytes of a message
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(..=i64::from(perf::LONGEST)))]
        length: u32,
        /// How many
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=measure::MOST_TRIPS))]
        count: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure latency, message rate and bandwidth to an endpoint that answers
    Perf {
        /// The endpoint: 7, or of a VM or a host, web:7
        #[arg(value_name = "ENDPOINT")]
        peer: measure::EndpointName,
        /// Bytes of a message
        #[arg(long, value_delimiter = ',', default_values_t = measure::LENGTHS, value_parser = clap::value_parser!(u32).range(..=i64::from(perf::LONGEST)))]
        lengths: Vec<u32>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Message {
    pub(crate) fn run(&self, runtime_dir: &Path) -> Result<(), Failure> {
        let board = &runtime_dir.join(BOARD);
        match self {
            Self::Answer { endpoint } => measure::answer(board, *endpoint),
            Self::Info { json } => print(&info::info(runtime_dir, *json)?),
            Self::Counters { json } => print(&info::counters(runtime_dir, *json)?),
            Self::Serve { members, way } => join::serve(runtime_dir, members, way),
            Self::Join { socket } => join::join(runtime_dir, socket.as_deref()),
            Self::QemuArgs { vm, json } => {
                let text = join::qemu_args(runtime_dir, vm);
                print(&qemu_args::words_of(&text, *json))
            }
            Self::Ping {
                peer,
                length,
                count,
                json,
            } => print(&measure::ping(board, peer, (*length, *count), *json)?),
            Self::Perf {
                peer,
                lengths,
                json,
            } => print(&measure::measure(board, peer, lengths, *json)?),
        }
    }
}
