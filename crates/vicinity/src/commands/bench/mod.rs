//! `vicinity bench`.

mod measure;
mod space_server;

use std::path::PathBuf;

use clap::Subcommand;

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The switch against OVS-DPDK, with DPDK's testpmd as both guests; needs root, two CPUs
    /// and some minutes
    Switch {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Frame lengths in bytes, Ethernet header included, check sequence not
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::switch::SIZES)]
        sizes: Vec<u16>,
        /// What to measure
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::switch::Part::ALL)]
        parts: Vec<::bench::switch::Part>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/switch.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// The message plane against UCX and TCP on loopback; needs root, two CPUs and some minutes
    Message {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Message lengths in bytes
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::message::LENGTHS)]
        lengths: Vec<u32>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/message.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// What it costs to change, read and watch a switch with 64 ports under load; needs root, two CPUs
    /// and a minute
    Operate {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/operate.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Messages between two hosts, which are network namespaces, against TCP; needs root and a minute
    Uplink {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Rates of the link between them, in Mbit/s
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::uplink::RATES)]
        rates: Vec<u32>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/uplink.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// A space's server against nginx on the same files; needs root, two CPUs and some minutes
    Space {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = ::bench::ROUNDS)]
        rounds: u32,
        /// Lengths of files in bytes
        #[arg(long, value_delimiter = ',', default_values_t = ::bench::space::LENGTHS)]
        lengths: Vec<u32>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/space.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// A space with the files of a folder in it; the benchmark runs it
    #[command(hide = true)]
    SpaceServer { folder: PathBuf },
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
