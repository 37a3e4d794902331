//! The command line.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};
use vm_harness::accel::{self, Accel};

use crate::commands::bench::Bench;
use crate::commands::direct::Direct;
use crate::commands::failure::{EXIT_CODES, Failure};
use crate::commands::guest_memory::GuestMemory;
use crate::commands::lab::Lab;
use crate::commands::message::Message;
use crate::commands::network::{Network, Port, list};
use crate::commands::nic::NicArgs;
use crate::commands::output::{self, print};
use crate::commands::space::Space;
use crate::commands::vsock::Vsock;
use crate::commands::{
    byte_size, capture, configuration, demo, doctor, libvirt_xml, mpi_hosts, qemu_args,
    qemu_version, reference, selftest, top, web,
};
use crate::logging::{self, Format, Level};
use crate::processes::message::{broker, gateway, uplink};
use crate::processes::start::{
    DATA_PLANE, DIRECT_GROUP, MESSAGE_GATEWAY, MESSAGE_PLANE, MESSAGE_UPLINK, SPACE, VSOCK,
};
use crate::processes::{data_plane, direct_group, space, vsock};
use crate::runtime_paths::RUNTIME_DIR;
use crate::{config, serve};

/// Connects the VMs of one host at memory speed.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = exit_codes())]
pub(crate) struct Cli {
    /// Folder of the daemon's control socket and of the networks' sockets [default: `runtime-dir` of the
    /// configuration, or /run/vicinity]
    #[arg(long, global = true, env = "VICINITY_RUNTIME_DIR", value_name = "DIR")]
    runtime_dir: Option<PathBuf>,

    /// Least severe messages that the log on standard error has
    #[arg(
        long = "log",
        global = true,
        value_enum,
        default_value = "info",
        value_name = "LEVEL"
    )]
    level: Level,

    /// Format of log lines
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    log_format: Format,

    #[command(subcommand)]
    command: Command,
}

/// Returns the exit codes on one line.
fn exit_codes() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("{code} {meaning}"));
    format!("Exit codes: {}.", codes.join(", "))
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon, which serves networks and spaces, until SIGINT or SIGTERM
    Serve {
        /// Configuration file; without it, one network accepts every socket in its folder
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// The data plane of one network; started by `serve`, with its control socket as standard
    /// input
    #[command(name = DATA_PLANE, hide = true)]
    DataPlane {
        /// Name of the network
        network: String,
        /// Threads that forward frames
        #[arg(long, default_value_t = 1)]
        workers: usize,
    },
    /// The data plane of the message plane; started by `serve`, with its control socket as standard
    /// input
    #[command(name = MESSAGE_PLANE, hide = true)]
    MessagePlane,
    /// The message plane's gateway for this host's programs; started by `serve` likewise
    #[command(name = MESSAGE_GATEWAY, hide = true)]
    MessageGateway,
    /// The message plane's uplink to other hosts; started by `serve` likewise
    #[command(name = MESSAGE_UPLINK, hide = true)]
    MessageUplink,
    /// A trust group of the direct channel; started by `serve` likewise
    #[command(name = DIRECT_GROUP, hide = true)]
    DirectGroup {
        /// Name of the group
        group: String,
    },
    /// The space of a VM; started by `serve` likewise
    #[command(name = SPACE, hide = true)]
    SpaceProcess {
        /// Name of the VM
        vm: String,
    },
    /// The sockets plane of some VMs; started by `serve` likewise
    #[command(name = VSOCK, hide = true)]
    VsockPlane {
        /// Name of the first VM
        vm: String,
    },
    /// Print the default configuration, as a template, or the configuration of a running daemon
    Config {
        /// Print the configuration of the running daemon
        #[arg(long)]
        running: bool,
        /// Print JSON, without the comments
        #[arg(long)]
        json: bool,
    },
    /// Make the daemon read its configuration file again; networks, ports and spaces without changes stay
    /// undisturbed
    Reload,
    /// Print the daemon's metrics in Prometheus' text format
    Metrics,
    /// Print QEMU's options for a VM's port
    QemuArgs {
        #[command(flatten)]
        which: NicArgs,
        /// Size of the guest's memory
        #[arg(long, default_value = "512M", value_parser = memory, value_name = "SIZE")]
        memory: String,
        #[command(flatten)]
        kind: GuestMemory,
        /// Print all options on one line
        #[arg(long)]
        one_line: bool,
        /// Print a JSON array of the words
        #[arg(long, conflicts_with = "one_line")]
        json: bool,
    },
    /// Print what libvirt needs for a VM: its interface, its region of the message plane, its space, and shared
    /// memory
    LibvirtXml {
        #[command(flatten)]
        which: NicArgs,
        #[command(flatten)]
        kind: GuestMemory,
        #[command(flatten)]
        part: libvirt_xml::Part,
    },
    /// Check what this machine supports and what is missing, with remedies; exit code 1 if it cannot serve VMs
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the CPU time of each VM, in the guest and in its back-end
    Top(top::Options),
    /// Serve a page with the problems, the VMs and their traffic, to one person on this host
    Web(web::Options),
    /// Boot two VMs, compare Vicinity with tap and Linux bridge, and write a report; needs root and takes some
    /// minutes
    Demo {
        /// Keep two VMs running with a root shell in each, instead of measuring
        #[arg(long)]
        shell: bool,
        /// Measure round trips between the two VMs with messages, and with TCP for comparison
        #[arg(long, conflicts_with = "shell")]
        messages: bool,
        /// Run an MPI program in four VMs, on the message plane and over TCP; `make demo-mpi` builds what it needs
        #[arg(long, conflicts_with_all = ["shell", "messages"])]
        mpi: bool,
        /// Run iperf3 and sockperf between two VMs, unmodified, by AF_VSOCK and by TCP; `make demo-sockets` builds what
        /// it needs
        #[arg(long, conflicts_with_all = ["shell", "messages", "mpi"])]
        sockets: bool,
        /// Keep two VMs running with traffic between them, and serve the page that shows them, instead of measuring
        #[arg(long, conflicts_with_all = ["shell", "messages", "mpi", "sockets", "channel"])]
        web: bool,
        /// Channel to compare with the bridge: `switch`, or `direct`, with which each VM can read the other's
        /// memory
        #[arg(long, value_parser = ["switch", "direct"], default_value = "switch", value_name = "NAME", conflicts_with_all = ["messages", "mpi", "sockets"])]
        channel: String,
        /// Accelerator of the VMs: `kvm` or `tcg`; with `kvm`, the demo fails if KVM does not work. Without
        /// this option, the demo uses KVM if it works
        #[arg(long, env = "VICINITY_ACCEL", value_name = "NAME")]
        accel: Option<Accel>,
        /// Folder for guest images, results and logs
        #[arg(long, default_value = demo::FOLDER, value_name = "DIR")]
        folder: PathBuf,
    },
    /// Check on VMs what works on this host, in at most ten minutes, and write a report for a bug report; needs root
    Selftest(selftest::Options),
    /// Measure the data path, the message plane or the memory plane natively
    #[command(subcommand)]
    Bench(Bench),
    /// Reproduce the measurement studies of the papers, on VMs of this host
    #[command(subcommand)]
    Lab(Lab),
    /// Send messages between processes of this host and of its VMs
    #[command(subcommand)]
    Message(Message),
    /// Print the members of the message plane as a hostfile of an MPI launcher
    MpiHosts {
        /// Launcher that reads the file
        #[arg(long, value_enum, default_value = "openmpi")]
        launcher: mpi_hosts::Launcher,
    },
    /// Manage the direct channel, which lets the VMs of one owner map each other's memory as an Ethernet device
    /// without a switch
    #[command(subcommand)]
    Direct(Direct),
    /// Manage spaces: file systems in host memory that VMs write and HTTP clients read
    #[command(subcommand)]
    Space(Space),
    /// Manage the VMs' AF_VSOCK sockets, which connect them with each other and with this host
    #[command(subcommand)]
    Vsock(Vsock),
    /// Print a shell's completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Write the pages of docs/reference into a folder
    #[command(hide = true)]
    Reference {
        /// The folder
        folder: PathBuf,
    },
    /// Capture the frames of ports in a pcapng file
    Capture(capture::Options),
    /// List, add, change and remove ports
    #[command(subcommand)]
    Port(Port),
    /// List, add, change and remove networks
    #[command(subcommand)]
    Network(Network),
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        logging::start(self.level, self.log_format);
        let given = self.runtime_dir.as_deref();
        let runtime_dir = given.unwrap_or(Path::new(RUNTIME_DIR));
        match self.command {
            Command::Serve { config } => {
                let (source, config) = config::Source::load(config.as_deref(), given)?;
                Ok(serve::run(
                    source,
                    config,
                    logging::options(self.level, self.log_format),
                )?)
            }
            Command::DataPlane { network, workers } => Ok(data_plane::run(&network, workers)?),
            Command::MessagePlane => Ok(broker::run()?),
            Command::MessageGateway => Ok(gateway::run(runtime_dir)?),
            Command::MessageUplink => Ok(uplink::run(runtime_dir)?),
            Command::DirectGroup { group } => Ok(direct_group::run(runtime_dir, &group)?),
            Command::SpaceProcess { vm } => Ok(space::run(&vm)?),
            Command::VsockPlane { vm } => Ok(vsock::run(&vm)?),
            Command::Config { running, json } => {
                let text = match running {
                    true => configuration::show(runtime_dir)?,
                    false => config::DEFAULT.to_owned(),
                };
                match json {
                    true => print(&output::as_json(&config::as_json(&text)?)),
                    false => print(&text),
                }
            }
            Command::Capture(options) => capture::run(runtime_dir, &options),
            Command::Reload => print(&configuration::reload(runtime_dir)?),
            Command::Metrics => print(&list::metrics(runtime_dir)?),
            Command::QemuArgs {
                which,
                memory,
                kind,
                one_line,
                json,
            } => {
                let size = byte_size::bytes(&memory).map_err(Failure::Usage)?;
                kind.check(size).map_err(Failure::Usage)?;
                let nic = which.find(given)?;
                let version = qemu_version::version(qemu_version::PROGRAM);
                let options = qemu_args::options(&nic, &memory, &kind, version);
                match json {
                    true => print(&output::as_json(&qemu_args::words(&options))),
                    false => print(&qemu_args::render(&options, one_line)),
                }
            }
            Command::LibvirtXml { which, kind, part } => {
                print(&libvirt_xml::print(&which, &kind, &part, given)?)
            }
            Command::Doctor { json } => doctor::run(runtime_dir, json),
            Command::Top(options) => top::run(runtime_dir, &options),
            Command::Web(options) => web::run(runtime_dir, &options),
            Command::Demo {
                shell,
                messages,
                mpi,
                sockets,
                web,
                channel,
                accel,
                folder,
            } => {
                accel.into_iter().for_each(accel::choose);
                match (shell, messages, mpi, sockets, web) {
                    (true, ..) => demo::shell(&channel, &folder),
                    (_, true, ..) => print(&demo::messages(&folder)?),
                    (_, _, true, ..) => print(&demo::mpi(&folder)?),
                    (_, _, _, true, _) => print(&demo::sockets(&folder)?),
                    (.., true) => demo::web(&folder),
                    _ => print(&demo::run(&channel, &folder)?),
                }
            }
            Command::Selftest(options) => selftest::run(&options),
            Command::Bench(bench) => print(&bench.run()?),
            Command::Lab(lab) => lab.run(),
            Command::Message(message) => message.run(runtime_dir),
            Command::MpiHosts { launcher } => print(&mpi_hosts::hostfile(runtime_dir, launcher)?),
            Command::Direct(direct) => direct.run(runtime_dir),
            Command::Space(space) => print(&space.run(runtime_dir)?),
            Command::Vsock(vsock) => print(&vsock.run(runtime_dir)?),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "vicinity", &mut script);
                print(&String::from_utf8_lossy(&script))
            }
            Command::Man { folder } => Ok(clap_mangen::generate_to(Self::command(), folder)?),
            Command::Reference { folder } => reference::write(Self::command(), &folder),
            Command::Port(port) => print(&port.run(runtime_dir)?),
            Command::Network(network) => print(&network.run(runtime_dir)?),
        }
    }
}

/// Checks a size in QEMU's format.
fn memory(text: &str) -> Result<String, String> {
    byte_size::bytes(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests;
