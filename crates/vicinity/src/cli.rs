//! The command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{EXIT_CODES, Failure};
use crate::logging::{self, Format, Level};
use crate::nic::Which;
use crate::operate::{Pair, Target};
use crate::spaces::Space;
use crate::{
    bench, capture, config, data_plane, demo, direct, direct_plane, doctor, libvirt, list,
    message_info, message_plane, messages, operate, plane, qemu, qemu_args, reference, serve,
    space_process, study, top,
};

/// Name of the subcommand that is a data plane.
pub(crate) const DATA_PLANE: &str = "data-plane";

/// Names of the subcommands that are the message plane's processes.
pub(crate) const MESSAGE_PLANE: &str = "message-plane";
pub(crate) const MESSAGE_GATEWAY: &str = "message-gateway";
pub(crate) const MESSAGE_UPLINK: &str = "message-uplink";

/// Name of the subcommand that serves a trust group of the direct channel.
pub(crate) const DIRECT_GROUP: &str = "direct-group";

/// Name of the subcommand that has a VM's space.
pub(crate) const SPACE: &str = "space-process";

/// VMs on one host talk at memory speed.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = exit_codes())]
pub(crate) struct Cli {
    /// Folder of the daemon's control socket and of the networks' sockets
    /// [default: what the configuration says, or /run/vicinity]
    #[arg(long, global = true, env = "VICINITY_RUNTIME_DIR", value_name = "DIR")]
    runtime_dir: Option<PathBuf>,

    /// How much is logged on standard error
    #[arg(
        long = "log",
        global = true,
        value_enum,
        default_value = "info",
        value_name = "LEVEL"
    )]
    level: Level,

    /// How a log line looks
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

/// The exit codes, on one line.
fn exit_codes() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("{code} {meaning}"));
    format!("Exit codes: {}.", codes.join(", "))
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve networks until SIGINT or SIGTERM
    Serve {
        /// Configuration; without it, one network accepts every socket in its folder
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
    /// The message plane's way to other hosts; started by `serve` likewise
    #[command(name = MESSAGE_UPLINK, hide = true)]
    MessageUplink,
    /// A trust group of the direct channel; started by `serve` likewise
    #[command(name = DIRECT_GROUP, hide = true)]
    DirectGroup {
        /// Its name
        group: String,
    },
    /// The space of a VM; started by `serve` likewise
    #[command(name = SPACE, hide = true)]
    SpaceProcess {
        /// Name of the VM
        vm: String,
    },
    /// Print the default configuration, as a start for your own; or that of a daemon at work
    Config {
        /// Print what the daemon has in force
        #[arg(long)]
        running: bool,
        /// As JSON, without the comments
        #[arg(long)]
        json: bool,
    },
    /// Have the daemon read its configuration file again: what did not change is not disturbed
    Reload,
    /// Print the daemon's figures in Prometheus' text format
    Metrics,
    /// Print QEMU's options for a VM's port
    QemuArgs {
        #[command(flatten)]
        which: Which,
        /// The guest's memory
        #[arg(long, default_value = "512M", value_parser = memory, value_name = "SIZE")]
        memory: String,
        /// All options on one line
        #[arg(long)]
        one_line: bool,
        /// As JSON: an array of words
        #[arg(long, conflicts_with = "one_line")]
        json: bool,
    },
    /// Print what libvirt needs for a VM's port: its interface, and shared memory
    LibvirtXml {
        #[command(flatten)]
        which: Which,
        /// The interface alone, for `virsh attach-device`
        #[arg(long, conflicts_with = "domain")]
        interface: bool,
        /// Add it to this domain, as `virsh dumpxml` wrote it, and print that; - is standard input
        #[arg(long, value_name = "FILE")]
        domain: Option<PathBuf>,
    },
    /// Tell what this machine can do, what is missing, and the remedy; exit code 1 when VMs
    /// cannot be served
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what the host's CPUs do for each VM, in the guest and in its backend
    Top(top::Options),
    /// Boot two VMs, measure Vicinity against tap and Linux bridge, and write a report; needs
    /// root and takes some minutes
    Demo {
        /// Keep two VMs running with a root shell in each, instead of measuring
        #[arg(long)]
        shell: bool,
        /// Play ping-pong between the two VMs with messages, and measure those beside TCP
        #[arg(long, conflicts_with = "shell")]
        messages: bool,
        /// The channel that is compared with the bridge: `switch`, or `direct`, where the two VMs see
        /// each other's memory
        #[arg(long, value_parser = ["switch", "direct"], default_value = "switch", value_name = "NAME", conflicts_with = "messages")]
        channel: String,
        /// Folder for guest images, results and logs
        #[arg(long, default_value = demo::FOLDER, value_name = "DIR")]
        folder: PathBuf,
    },
    /// Measure the data path or the message plane natively
    #[command(subcommand)]
    Bench(Bench),
    /// Run the measurement studies of the papers again, on VMs of this host
    #[command(subcommand)]
    Lab(Lab),
    /// Send messages between processes of this host and of its VMs
    #[command(subcommand)]
    Message(Message),
    /// Let VMs of one owner see each other's memory, for an Ethernet device without a switch
    #[command(subcommand)]
    Direct(Direct),
    /// VMs' spaces: what the host sends for them
    #[command(subcommand)]
    Space(Space),
    /// Print the completions for a shell
    Completions {
        /// Which shell
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
    /// Write the frames of ports, as they pass, into a pcapng file
    Capture(capture::Options),
    /// Look at ports, and change them
    #[command(subcommand)]
    Port(Port),
    /// Look at networks, and change them
    #[command(subcommand)]
    Network(Network),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The switch against OVS-DPDK, with DPDK's testpmd as both guests; needs root, two CPUs
    /// and some minutes
    Switch {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = lab::bench::ROUNDS)]
        rounds: u32,
        /// Frame lengths in bytes, Ethernet header included, check sequence not
        #[arg(long, value_delimiter = ',', default_values_t = lab::bench::SIZES)]
        sizes: Vec<u16>,
        /// What to measure
        #[arg(long, value_delimiter = ',', default_values_t = lab::bench::Part::ALL)]
        parts: Vec<lab::bench::Part>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/switch.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// The message plane against UCX and TCP on loopback; needs root, two CPUs and some minutes
    Message {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = lab::bench::ROUNDS)]
        rounds: u32,
        /// Message lengths in bytes
        #[arg(long, value_delimiter = ',', default_values_t = lab::bench::message::LENGTHS)]
        lengths: Vec<u32>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/message.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// What it costs to change, read and watch a switch with 64 ports under load; needs root, two CPUs
    /// and a minute
    Operate {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = lab::bench::ROUNDS)]
        rounds: u32,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/operate.json", value_name = "FILE")]
        output: PathBuf,
    },
    /// Messages between two hosts, which are network namespaces, against TCP; needs root and a minute
    Uplink {
        /// How often each measurement is repeated
        #[arg(long, default_value_t = lab::bench::ROUNDS)]
        rounds: u32,
        /// Rates of the link between them, in Mbit/s
        #[arg(long, value_delimiter = ',', default_values_t = lab::bench::uplink::RATES)]
        rates: Vec<u32>,
        /// Where the report is written, as JSON
        #[arg(long, default_value = "target/bench/uplink.json", value_name = "FILE")]
        output: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum Lab {
    /// List every experiment, and whether this machine can run it
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments on real VMs and write a report; needs root
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Run {
        /// Experiments, as `list` names them
        #[arg(group = "which", value_name = "ID")]
        ids: Vec<String>,
        /// All that this machine can run
        #[arg(long, group = "which")]
        all: bool,
        /// Only these levels of a factor; may be given several times
        #[arg(long, value_name = "FACTOR=LEVEL[,LEVEL]")]
        only: Vec<String>,
        /// How much is measured: a quarter of an hour, about two hours, a night
        #[arg(long, value_enum, default_value = "default")]
        scale: Scale,
        /// Minutes for measuring, in place of the scale's; more blocks are measured in more time
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        minutes: Option<u32>,
        /// Seed of the order in which cells are measured [default: drawn, and noted]
        #[arg(long)]
        seed: Option<u64>,
        /// Folder of the results
        #[arg(long, default_value = study::FOLDER, value_name = "DIR")]
        output: PathBuf,
    },
    /// Complete a run that was cut short
    Resume {
        /// Folder of the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Write a run's report again from its samples
    Report {
        /// Folder of the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Compare two runs, cell by cell
    Compare {
        /// Folder of a run
        a: PathBuf,
        /// Folder of another
        b: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Load a web server; the lab runs it in the second host's place
    #[command(hide = true)]
    Http {
        #[arg(long)]
        server: std::net::SocketAddr,
        #[arg(long)]
        path: String,
        #[arg(long)]
        rate: Option<f64>,
        #[arg(long)]
        warm_up: f64,
        #[arg(long)]
        seconds: f64,
        #[arg(long)]
        workers: usize,
    },
    /// Fill a switch's residency table; the lab runs it beside the uplink
    #[command(hide = true)]
    Residents {
        #[arg(long)]
        count: u32,
    },
    /// Time look-ups among so many residents, in nanoseconds; the lab runs it
    #[command(hide = true)]
    Lookups {
        #[arg(long)]
        residents: u32,
    },
}

/// How much is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Scale {
    Ci,
    Default,
    Full,
}

impl From<Scale> for lab::study::catalogue::Scale {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Ci => Self::Ci,
            Scale::Default => Self::Default,
            Scale::Full => Self::Full,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Message {
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
        #[arg(required = true, value_parser = plane::member, value_name = "NAME")]
        members: Vec<message::far::Member>,
        #[command(flatten)]
        way: crate::uplink::Way,
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
        peer: messages::To,
        /// Bytes of a message
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(..=1 << 28))]
        length: u32,
        /// How many
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure latency, message rate and bandwidth to an endpoint that answers
    Perf {
        /// The endpoint: 7, or of a VM or a host, web:7
        #[arg(value_name = "ENDPOINT")]
        peer: messages::To,
        /// Bytes of a message
        #[arg(long, value_delimiter = ',', default_values_t = messages::LENGTHS, value_parser = clap::value_parser!(u32).range(..=1 << 28))]
        lengths: Vec<u32>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum Direct {
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

#[derive(Debug, Subcommand)]
enum Port {
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
        pairs: Vec<Pair>,
    },
    /// Change one; its VM stays connected unless `socket` or `mode` change
    Set {
        /// The network's name
        network: String,
        /// The VM's name
        vm: String,
        /// What is new; KEY= takes a key away
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<Pair>,
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
enum Network {
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
        pairs: Vec<Pair>,
    },
    /// Change one
    Set {
        /// Its name
        network: String,
        /// What is new; KEY= takes a key away
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<Pair>,
    },
    /// Remove one, with its ports
    Remove {
        /// Its name
        network: String,
    },
}

impl Cli {
    /// Do what was asked.
    pub(crate) fn run(self) -> Result<(), Failure> {
        logging::start(self.level, self.log_format);
        let given = self.runtime_dir.as_deref();
        let runtime_dir = given.unwrap_or(Path::new(config::RUNTIME_DIR));
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
            Command::MessagePlane => Ok(message_plane::run()?),
            Command::MessageGateway => Ok(message_plane::host(runtime_dir)?),
            Command::MessageUplink => Ok(crate::uplink::process(runtime_dir)?),
            Command::DirectGroup { group } => Ok(direct_plane::run(runtime_dir, &group)?),
            Command::SpaceProcess { vm } => Ok(space_process::run(&vm)?),
            Command::Config { running, json } => {
                let text = match running {
                    true => operate::show(runtime_dir)?,
                    false => config::DEFAULT.to_owned(),
                };
                match json {
                    true => print(&list::as_json(&config::as_json(&text)?)),
                    false => print(&text),
                }
            }
            Command::Capture(options) => capture::run(runtime_dir, &options),
            Command::Reload => print(&operate::reload(runtime_dir)?),
            Command::Metrics => print(&list::metrics(runtime_dir)?),
            Command::QemuArgs {
                which,
                memory,
                one_line,
                json,
            } => {
                let nic = which.find(given)?;
                let options = qemu_args::options(&nic, &memory, qemu::version(qemu::PROGRAM));
                match json {
                    true => print(&list::as_json(&qemu_args::words(&options))),
                    false => print(&qemu_args::render(&options, one_line)),
                }
            }
            Command::LibvirtXml {
                which,
                interface,
                domain,
            } => {
                let nic = which.find(given)?;
                match domain {
                    Some(file) => print(&libvirt::domain(&nic, &file)?),
                    None if interface => print(&libvirt::interface(&nic)),
                    None => print(&libvirt::parts(&nic)),
                }
            }
            Command::Doctor { json } => examine(runtime_dir, json),
            Command::Top(options) => top::run(runtime_dir, &options),
            Command::Demo {
                shell: true,
                channel,
                folder,
                ..
            } => demo::shell(&channel, &folder),
            Command::Demo {
                messages: true,
                folder,
                ..
            } => print(&demo::messages(&folder)?),
            Command::Demo {
                channel, folder, ..
            } => print(&demo::run(&channel, &folder)?),
            Command::Bench(Bench::Switch {
                rounds,
                sizes,
                parts,
                output,
            }) => print(&bench::switch(rounds, &sizes, &parts, &output)?),
            Command::Bench(Bench::Operate { rounds, output }) => {
                print(&bench::operate(rounds, &output)?)
            }
            Command::Bench(Bench::Message {
                rounds,
                lengths,
                output,
            }) => print(&bench::message(rounds, &lengths, &output)?),
            Command::Bench(Bench::Uplink {
                rounds,
                rates,
                output,
            }) => print(&bench::uplink(rounds, &rates, &output)?),
            Command::Lab(lab) => lab.run(),
            Command::Message(command) => exchange(runtime_dir, &command),
            Command::Direct(direct) => direct.run(runtime_dir),
            Command::Space(space) => print(&space.run(runtime_dir)?),
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

impl Port {
    fn run(self, runtime_dir: &Path) -> Result<String, Failure> {
        Ok(match self {
            Self::List { json } => list::ports(runtime_dir, json)?,
            Self::Show { network, vm } => list::port(runtime_dir, &network, &vm)?,
            Self::Add { network, vm, pairs } => {
                operate::add(runtime_dir, Target::Port(&network, &vm), &pairs)?
            }
            Self::Set { network, vm, pairs } => {
                operate::set(runtime_dir, Target::Port(&network, &vm), &pairs)?
            }
            Self::Remove { network, vm } => {
                operate::remove(runtime_dir, Target::Port(&network, &vm))?
            }
        })
    }
}

impl Network {
    fn run(self, runtime_dir: &Path) -> Result<String, Failure> {
        Ok(match self {
            Self::List { json } => list::networks(runtime_dir, json)?,
            Self::Show { network } => list::network(runtime_dir, &network)?,
            Self::Add { network, pairs } => {
                operate::add(runtime_dir, Target::Network(&network), &pairs)?
            }
            Self::Set { network, pairs } => {
                operate::set(runtime_dir, Target::Network(&network), &pairs)?
            }
            Self::Remove { network } => operate::remove(runtime_dir, Target::Network(&network))?,
        })
    }
}

impl Direct {
    fn run(self, runtime_dir: &Path) -> Result<(), Failure> {
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

impl Lab {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { json } => print(&study::list(json)),
            Self::Run {
                ids,
                only,
                scale,
                minutes,
                seed,
                output,
                ..
            } => {
                let scale = scale.into();
                print(&study::start(&ids, &only, scale, minutes, seed, &output)?)
            }
            Self::Resume { output } => print(&study::resume(&output)?),
            Self::Report { output } => print(&study::report(&output)?),
            Self::Compare { a, b, json } => print(&study::compare(&a, &b, json)?),
            Self::Http {
                server,
                path,
                rate,
                warm_up,
                seconds,
                workers,
            } => print(&study::request(&lab::study::http::Load {
                server,
                path,
                rate,
                warm_up,
                seconds,
                workers,
            })),
            Self::Residents { count } => study::fill(count),
            Self::Lookups { residents } => print(&study::time_lookups(residents).to_string()),
        }
    }
}

fn exchange(runtime_dir: &Path, command: &Message) -> Result<(), Failure> {
    let board = &runtime_dir.join(plane::BOARD);
    match command {
        Message::Answer { endpoint } => messages::answer(board, *endpoint),
        Message::Info { json } => print(&message_info::info(runtime_dir, *json)?),
        Message::Counters { json } => print(&message_info::counters(runtime_dir, *json)?),
        Message::Serve { members, way } => plane::serve(runtime_dir, members, way),
        Message::Join { socket } => plane::join(runtime_dir, socket.as_deref()),
        Message::QemuArgs { vm, json } => {
            let text = plane::qemu_args(runtime_dir, vm);
            print(&qemu_args::words_of(&text, *json))
        }
        Message::Ping {
            peer,
            length,
            count,
            json,
        } => print(&messages::ping(board, peer, (*length, *count), *json)?),
        Message::Perf {
            peer,
            lengths,
            json,
        } => print(&messages::measure(board, peer, lengths, *json)?),
    }
}

fn examine(runtime_dir: &Path, json: bool) -> Result<(), Failure> {
    // The probe boots a guest, which must not outlive a Ctrl-C.
    lab::interrupt::install()?;
    let checks = doctor::examine(runtime_dir);
    match json {
        true => print(&list::as_json(&checks))?,
        false => print(&doctor::as_text(&checks))?,
    }
    match doctor::can_serve(&checks) {
        true => Ok(()),
        false => Err(Failure::Doctor),
    }
}

/// A size as QEMU takes it.
fn memory(text: &str) -> Result<String, String> {
    direct::bytes(text).map(|_| text.to_owned())
}

/// Write to standard output. A reader that went away is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
