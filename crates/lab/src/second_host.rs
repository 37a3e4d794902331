//! Emulates a second host by a network namespace behind a link of 1 Gbit/s.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::{interrupt, scope};

use super::http::{Load, Report};

/// The ports of iperf3's servers, in the VMs and on the second host. A server runs one test at a time and notices the
/// end of a test late, so each test uses the next port.
pub(crate) const PORTS: [u16; 4] = [5201, 5202, 5203, 5204];

/// Last byte of the second host's address on each network.
const NUMBER: u8 = 250;

/// Rate of the link in each direction. The burst must hold a segment of 64 KB.
const SHAPE: [&str; 7] = ["tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms"];

/// The namespace with its servers. Dropping the value ends and removes all of them.
#[derive(Debug)]
pub struct SecondHost {
    // Fields are dropped in this order.
    servers: Vec<ChildProcess>,
    namespace: String,
    vicinity: PathBuf,
}

impl SecondHost {
    /// Makes the namespace.
    ///
    /// # Errors
    /// The process is not root, or `ip` fails.
    pub fn new(vicinity: &Path) -> Result<Self> {
        let namespace = scope::unique();
        ip(&["netns", "add", &namespace])?;
        let remote = Self {
            servers: Vec::new(),
            namespace,
            vicinity: vicinity.to_owned(),
        };
        ip(&["-n", &remote.namespace, "link", "set", "lo", "up"])?;
        Ok(remote)
    }

    /// Joins the second host to the bridge `br0` of a namespace, as network `number`.
    ///
    /// # Errors
    /// `ip` or `tc` fails.
    pub fn join(&self, bridge: &str, number: u8) -> Result<()> {
        let (near, far) = (format!("far{number}"), format!("near{number}"));
        let (here, address) = (self.namespace.as_str(), format!("{}/24", address(number)));
        ip(&[
            "-n", here, "link", "add", &far, "type", "veth", "peer", "name", &near, "netns", bridge,
        ])?;
        ip(&["-n", here, "addr", "add", &address, "dev", &far])?;
        ip(&["-n", here, "link", "set", &far, "up"])?;
        ip(&["-n", bridge, "link", "set", &near, "master", "br0", "up"])?;
        for (namespace, device) in [(here, &far), (bridge, &near)] {
            let mut tc = host::command("tc");
            tc.args(["-n", namespace, "qdisc", "add", "dev", device, "root"])
                .args(SHAPE);
            host::run(tc)?;
        }
        Ok(())
    }

    /// Starts the servers that streams and requests need.
    ///
    /// # Errors
    /// A server does not start.
    pub fn serve(&mut self) -> Result<()> {
        let mut commands = ["--tcp ", ""]
            .map(|carrier| format!("sockperf server {carrier}--ip 0.0.0.0 --port 11111"))
            .to_vec();
        commands.extend(PORTS.map(|port| format!("iperf3 --server --port {port}")));
        for words in &commands {
            let words: Vec<&str> = words.split(' ').collect();
            let mut command = self.inside(&words);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            self.servers.push(ChildProcess::spawn(command)?);
        }
        interrupt::poll("the second host's servers", Duration::from_secs(10), || {
            let listening = host::run(self.inside(&["ss", "-Htuln"]))?;
            let sockets = |port: u16| listening.matches(&format!(":{port} ")).count();
            let up = PORTS.into_iter().all(|port| sockets(port) > 0) && sockets(11111) > 1;
            Ok(up.then_some(()))
        })
    }

    /// Loads a server from the second host. The HTTP client ([`crate::http`]) runs in a separate process.
    ///
    /// # Errors
    /// The client fails.
    pub fn request(&self, load: &Load) -> Result<Report> {
        report(&host::run(self.client(load))?)
    }

    /// Like [`SecondHost::request`], while `work` runs: the client continues until the work is done, and reports the
    /// requested time.
    ///
    /// # Errors
    /// Those of the work, or the client fails.
    pub fn request_beside<T>(
        &self,
        load: &Load,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(Report, T)> {
        let (printed, done) = host::run_beside(self.client(load), work)?;
        Ok((report(&printed)?, done))
    }

    fn client(&self, load: &Load) -> std::process::Command {
        let program = self.vicinity.to_string_lossy().into_owned();
        let mut words = vec![
            program,
            "lab".to_owned(),
            "http".to_owned(),
            format!("--server={}", load.server),
            format!("--path={}", load.path),
            format!("--warm-up={}", load.warm_up),
            format!("--seconds={}", load.seconds),
            format!("--workers={}", load.workers),
        ];
        words.extend(load.rate.map(|rate| format!("--rate={rate}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.inside(&words)
    }

    /// Returns a command that runs in this namespace.
    fn inside(&self, words: &[&str]) -> std::process::Command {
        let mut command = host::command("ip");
        command.args(["netns", "exec", &self.namespace]).args(words);
        command
    }

    /// Runs a program in the namespace to its end.
    ///
    /// # Errors
    /// The program fails.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        host::run(self.inside(words))
    }
}

fn report(text: &str) -> Result<Report> {
    serde_json::from_str(text).map_err(|_| Error::unreadable("the HTTP client's report", text))
}

impl Drop for SecondHost {
    fn drop(&mut self) {
        self.servers.clear();
        if let Err(error) = scope::delete_namespace(&self.namespace) {
            tracing::warn!("cannot remove the namespace {}: {error}", self.namespace);
        }
    }
}

/// Returns the second host's address on a network.
#[must_use]
pub fn address(network: u8) -> String {
    channel::address(network, NUMBER)
}

/// Address of a web server of a VM.
///
/// # Errors
/// None with addresses of the testbed.
pub fn server(network: u8, vm: u8, port: u16) -> Result<SocketAddr> {
    let text = channel::address(network, vm);
    let ip: IpAddr = text
        .parse()
        .map_err(|_| Error::unreadable("an address", &text))?;
    Ok(SocketAddr::new(ip, port))
}

fn ip(words: &[&str]) -> Result<()> {
    let mut command = host::command("ip");
    command.args(words);
    host::run(command).map(drop)
}
