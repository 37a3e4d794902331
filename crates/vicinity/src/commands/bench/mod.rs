//! `vicinity bench`.

mod measure;
mod space_server;

use std::path::PathBuf;

use clap::Subcommand;

use super::failure::Failure;
use crate::config::deprecated;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Compare the switch with OVS-DPDK, with DPDK's testpmd as both guests; needs root, two CPUs and some
    /// minutes
    Switch {
        /// Number of rounds, in each of which every measurement runs once
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Frame lengths in bytes, with the Ethernet header, without the frame check sequence
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::switch::SIZES)]
        sizes: Vec<u16>,
        /// Parts of the benchmark to run
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::switch::Part::ALL, value_parser = part)]
        parts: Vec<::bench::switch::Part>,
        /// File for the report, as JSON
        #[arg(long, default_value = "target/bench/switch.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Compare the message plane with UCX and with TCP on loopback; needs root, two CPUs and some minutes
    Message {
        /// Number of rounds, in each of which every measurement runs once
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Message lengths in bytes
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::message::LENGTHS)]
        lengths: Vec<u32>,
        /// File for the report, as JSON
        #[arg(long, default_value = "target/bench/message.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Measure the cost of changes, status requests and captures of a switch with 64 ports under load; needs
    /// root, two CPUs and a minute
    Operate {
        /// Number of rounds, in each of which every measurement runs once
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// File for the report, as JSON
        #[arg(long, default_value = "target/bench/operate.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Compare messages between two hosts, which are network namespaces, with TCP; needs root and a minute
    Uplink {
        /// Number of rounds, in each of which every measurement runs once
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Rates of the link between the hosts, in Mbit/s
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::uplink::RATES)]
        rates: Vec<u32>,
        /// File for the report, as JSON
        #[arg(long, default_value = "target/bench/uplink.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Compare a space's server with nginx on the same files; needs root, two CPUs and some minutes
    Space {
        /// Number of rounds, in each of which every measurement runs once
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// File lengths in bytes
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::space::LENGTHS)]
        lengths: Vec<u32>,
        /// File for the report, as JSON
        #[arg(long, default_value = "target/bench/space.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// A space with the files of a folder in it; the benchmark runs it
    #[command(hide = true)]
    SpaceServer { folder: PathBuf },
}

/// Parses a part of the switch's benchmark. The log does not run yet, so the warning goes to standard error.
fn part(text: &str) -> Result<::bench::switch::Part, String> {
    if text == ::bench::switch::Part::OLD_FDB {
        eprintln!("warning: {}", deprecated::warning(text, "fdb"));
    }
    text.parse()
}

impl Bench {
    pub(crate) fn run(self) -> Result<String, Failure> {
        match self {
            Self::Switch {
                rounds,
                sizes,
                parts,
                output,
            } => measure::switch(rounds, &sizes, &parts, &output),
            Self::Operate { rounds, output } => measure::operate(rounds, &output),
            Self::Message {
                rounds,
                lengths,
                output,
            } => measure::message(rounds, &lengths, &output),
            Self::Uplink {
                rounds,
                rates,
                output,
            } => measure::uplink(rounds, &rates, &output),
            Self::Space {
                rounds,
                lengths,
                output,
            } => measure::space(rounds, &lengths, &output),
            Self::SpaceServer { folder } => space_server::serve(&folder).map(|()| String::new()),
        }
    }
}
