//! Sets up two hosts with a daemon each, and a link between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use message::remote::{DATAGRAMS_VARIABLE, INTERFACE_VARIABLE};
use serde_json::Value;

use super::namespace::{HOSTS, INTERFACE, Namespace, ip};
use super::tcp;
use crate::process::Process;
use report::message_perf::Row;
use vm_harness::error::{Context, Error, Result};
use vm_harness::host;
use vm_harness::interrupt;

/// MTU of the interfaces. It makes TCP's frames as long as jumbo frames.
const MTU: &str = "9000";

/// The endpoints that answer on the second host, by its daemon: one waits in calls, the other polls.
const ENDPOINTS: [&str; 2] = ["7", "8"];

/// The endpoint of a program that polls and serves the interface itself.
const SERVING: &str = "9";

/// The endpoint of a program that polls and takes datagrams.
const TAKING_DATAGRAMS: &str = "10";

/// Bytes of the messages of a round trip, and the number of round trips. They last some tenths of a second, because a program reads the sender of each datagram
/// for a tenth of a second after it has connected a socket.
const SHORT: (usize, u32) = (8, 50_000);

/// Longest time until the hosts have discovered each other.
const LIMIT: Duration = Duration::from_secs(20);

/// All endpoints that answer, with the way of their messages, and whether they poll.
const ANSWERING: [(&str, Way, bool); 4] = [
    (ENDPOINTS[0], Way::Daemons, false),
    (ENDPOINTS[1], Way::Daemons, true),
    (SERVING, Way::InProcess, true),
    (TAKING_DATAGRAMS, Way::Datagrams, true),
];

/// Seconds of a TCP measurement.
const SECONDS: &str = "1";

/// How messages reach the other host.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// By the uplinks of the daemons.
    Daemons,
    /// By the programs' own calls, beside the daemons, see `message::remote::InProcess`.
    InProcess,
    /// By datagrams between the programs, see `message::remote::DatagramPlane`.
    Datagrams,
}

impl Way {
    /// Makes a program use this way.
    fn choose(self, command: &mut Command) {
        match self {
            // Otherwise the program would use the daemon's offer.
            Self::Daemons => command.env(INTERFACE_VARIABLE, ""),
            Self::InProcess => command,
            Self::Datagrams => command
                .env(INTERFACE_VARIABLE, "")
                .env(DATAGRAMS_VARIABLE, INTERFACE),
        };
    }
}

/// Two hosts with their programs. Fields are dropped in this order.
pub(super) struct Hosts {
    _processes: Vec<Process>,
    namespaces: [Namespace; 2],
    vicinity: PathBuf,
    folder: PathBuf,
}

impl Hosts {
    pub(super) fn start(vicinity: &Path, folder: &Path) -> Result<Self> {
        let [first, second] = HOSTS.map(Namespace::new);
        let (first, second) = (first?, second?);
        ip(&[
            "-n",
            &first.name,
            "link",
            "add",
            INTERFACE,
            "mtu",
            MTU,
            "type",
            "veth",
            "peer",
            "name",
            INTERFACE,
            "mtu",
            MTU,
            "netns",
            &second.name,
        ])?;
        let mut hosts = Self {
            _processes: Vec::new(),
            namespaces: [first, second],
            vicinity: vicinity.to_owned(),
            folder: folder.to_owned(),
        };
        hosts.namespaces.iter().try_for_each(Namespace::set_up)?;
        let started = hosts.processes()?;
        hosts._processes = started;
        hosts.wait_for_discovery()?;
        Ok(hosts)
    }

    fn runtime_dir(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts the daemons, and the programs that answer messages and TCP on the second host.
    fn processes(&self) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for namespace in &self.namespaces {
            let name = namespace.host.name;
            let config = self.folder.join(format!("{name}.toml"));
            let text = format!(
                "[message]\nuplink = {{ interface = \"{INTERFACE}\", host-name = \"{name}\" }}\n\
                 [[message.member]]\nname = \"host\"\n"
            );
            fs::write(&config, text).context(|| format!("write {}", config.display()))?;
            let mut command = namespace.service(&self.vicinity);
            command.arg("--runtime-dir").arg(self.runtime_dir(name));
            command.arg("serve").arg("--config").arg(config);
            let mut daemon = Process::start(name, &self.folder, command)?;
            daemon.expect("serving")?;
            processes.push(daemon);
        }
        let [_, namespace] = &self.namespaces;
        for (endpoint, way, poll) in ANSWERING {
            let mut answer = self.message(namespace, way);
            answer.args(["answer", "--endpoint", endpoint]);
            answer.args(poll.then_some("--poll"));
            let name = format!("answerer-{endpoint}");
            let mut answerer = Process::start(&name, &self.folder, answer)?;
            answerer.expect("answering")?;
            processes.push(answerer);
        }
        let server = namespace.command(&["iperf3", "--server", "--forceflush"]);
        let mut server = Process::start("iperf3", &self.folder, server)?;
        server.expect("listening")?;
        processes.push(server);
        Ok(processes)
    }

    /// Waits until each host has discovered the other.
    fn wait_for_discovery(&self) -> Result<()> {
        let [first, second] = HOSTS;
        for (here, there) in [(first.name, second.name), (second.name, first.name)] {
            let directory = self.runtime_dir(here).join("message/hosts");
            let line = format!(" {there}\n");
            interrupt::poll(&format!("{here} to hear of {there}"), LIMIT, || {
                // The file does not exist before the first host is discovered.
                let text = fs::read_to_string(&directory).unwrap_or_default();
                Ok(text.contains(&line).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Limits the link to a rate in Mbit/s, in both directions.
    pub(super) fn shape(&self, rate: u32) -> Result<()> {
        let rate = format!("{rate}mbit");
        for namespace in &self.namespaces {
            let words = [
                "tc", "qdisc", "replace", "dev", INTERFACE, "root", "tbf", "rate", &rate, "burst",
                "1mb", "limit", "16mb",
            ];
            host::run(namespace.command(&words))?;
        }
        Ok(())
    }

    /// Measures how many bytes a second messages carry.
    pub(super) fn messages(&self, length: u32, way: Way) -> Result<f64> {
        let [waiting, _] = ENDPOINTS;
        let endpoint = match way {
            Way::Daemons => waiting,
            Way::InProcess => SERVING,
            Way::Datagrams => TAKING_DATAGRAMS,
        };
        let mut command = self.measurement("perf", endpoint, way);
        command.args(["--lengths", &length.to_string()]);
        let text = host::run(command)?;
        match serde_json::from_str::<Vec<Row>>(&text).as_deref() {
            Ok([row]) => Ok(row.plain.messages_per_s * f64::from(length)),
            _ => Err(Error::unreadable(
                "the figures of `vicinity message`",
                &text,
            )),
        }
    }

    /// Returns the command `vicinity message` of a host.
    fn message(&self, namespace: &Namespace, way: Way) -> Command {
        let mut command = namespace.command(&[]);
        command.arg(&self.vicinity).arg("--runtime-dir");
        command
            .arg(self.runtime_dir(namespace.host.name))
            .arg("message");
        way.choose(&mut command);
        command
    }

    /// Returns a command of the first host that measures messages to an endpoint of the second.
    fn measurement(&self, measurement: &str, endpoint: &str, way: Way) -> Command {
        let [first, second] = &self.namespaces;
        let mut command = self.message(first, way);
        let peer = format!("{}:{endpoint}", second.host.name);
        command.args([measurement, &peer, "--json"]);
        command
    }

    /// Measures round trips of short messages between programs that wait, between programs that poll, between
    /// programs that poll and serve the interface, or send each other datagrams, and of TCP between programs that poll: medians in microseconds.
    pub(super) fn round_trips(&self) -> Result<[f64; 5]> {
        let (length, count) = SHORT;
        let [waiting, polling] = ENDPOINTS;
        let ping = |endpoint, way, poll| ping(self.measurement("ping", endpoint, way), poll);
        Ok([
            ping(waiting, Way::Daemons, false)?,
            ping(polling, Way::Daemons, true)?,
            ping(SERVING, Way::InProcess, true)?,
            ping(TAKING_DATAGRAMS, Way::Datagrams, true)?,
            tcp::round_trip(&self.namespaces, length, count)?,
        ])
    }

    /// Measures how many bytes a second a TCP stream carries.
    pub(super) fn tcp(&self) -> Result<f64> {
        let [first, second] = &self.namespaces;
        let address = second.host.address;
        let client = ["iperf3", "--client", address, "--time", SECONDS, "--json"];
        let text = host::run(first.command(&client))?;
        let found = serde_json::from_str(&text)
            .ok()
            .and_then(|found: Value| found.pointer("/end/sum_received/bits_per_second")?.as_f64());
        let bits = found.ok_or_else(|| Error::unreadable("the figures of iperf3", &text))?;
        Ok(bits / 8.0)
    }
}

/// Runs `vicinity message ping`, and returns the median in microseconds.
fn ping(mut command: Command, poll: bool) -> Result<f64> {
    let (length, count) = SHORT;
    command.args(["--length", &length.to_string()]);
    command.args(["--count", &count.to_string()]);
    command.args(poll.then_some("--poll"));
    let text = host::run(command)?;
    let found = serde_json::from_str(&text)
        .ok()
        .and_then(|found: Value| found.get("p50_us")?.as_f64());
    found.ok_or_else(|| Error::unreadable("the figures of `vicinity message ping`", &text))
}
