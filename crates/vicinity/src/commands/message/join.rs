//! The message plane between members: VMs of this host, and the host itself.

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use message::MessageError;
use message::remote::{self, BOARD, Broker, Gateway, Member, uplink};
use mxoe::Port;
use vm_harness::interrupt;
use window::cached::LoadTime;

use crate::commands::failure::Failure;
use crate::commands::qemu_args::value;
use crate::commands::signals::keep_running;
use crate::config::deprecated;
use crate::message_uplink::{HOST, PEER_TIMEOUT, Plan, UPLINK, Uplink, share, share_board};
use crate::name;
use crate::runtime_paths::{MESSAGE_FOLDER, member_socket};

/// Pause between two attempts to join again.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);

/// Where other hosts are, and how this one appears to them, on the command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct UplinkArgs {
    /// Interface to other hosts, for MX over Ethernet; its MTU must be 4130 or more
    #[arg(long, value_name = "INTERFACE")]
    uplink: Option<String>,
    /// Name of this host for other hosts [default: the host name]
    #[arg(long, requires = "uplink", value_parser = host_name, value_name = "NAME")]
    host_name: Option<String>,
    /// Seconds after which the connections to a host that does not answer end with an error
    #[arg(long, default_value_t = PEER_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    peer_timeout: u64,
    /// The old name of `--peer-timeout`
    #[arg(long, hide = true, conflicts_with = "peer_timeout", value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    give_up: Option<u64>,
}

pub(super) fn host_name(text: &str) -> Result<String, name::NameError> {
    name::check(text).map(|()| text.to_owned())
}

impl UplinkArgs {
    pub(crate) fn uplink(&self) -> Option<Uplink> {
        if self.give_up.is_some() {
            tracing::warn!("{}", deprecated::warning("--give-up", "--peer-timeout"));
        }
        Some(Uplink {
            interface: self.uplink.clone()?,
            host_name: self.host_name.clone(),
            peer_timeout: Duration::from_secs(self.give_up.unwrap_or(self.peer_timeout)),
            has_program_sockets: false,
        })
    }
}

/// Parses a member: `NAME`, or `NAME=GROUP`.
pub(crate) fn member(text: &str) -> Result<Member, String> {
    let (name, group) = match text.split_once('=') {
        Some((name, group)) => (name, Some(group)),
        None => (text, None),
    };
    for word in [Some(name), group].into_iter().flatten() {
        name::check(word).map_err(|error| error.to_string())?;
    }
    Ok(Member {
        name: name.to_owned(),
        group: group.map(str::to_owned),
        ..Member::default()
    })
}

/// Joins these members until SIGINT or SIGTERM. If the host is one of them, this process is also
/// the host's gateway. If there is an uplink, this process also runs the uplink.
pub(crate) fn serve(
    runtime_dir: &Path,
    members: &[Member],
    way: &UplinkArgs,
) -> Result<(), Failure> {
    interrupt::install()?;
    let mut members = members.to_vec();
    let uplink = way.uplink().map(|uplink| {
        let plan = uplink.plan(&mut members);
        let open = plan.and_then(|plan| plan.open().map(|port| (plan, port)));
        open.map_err(|error| {
            let interface = &uplink.interface;
            Failure::Usage(format!(
                "cannot use the uplink {interface}: {error}; check its name and MTU, and run \
                as root"
            ))
        })
    });
    let uplink = uplink.transpose()?;
    let host = members.iter().any(|member| member.name == HOST);
    let mut broker = Broker::new(&runtime_dir.join(MESSAGE_FOLDER), &members)?;
    thread::scope(|scope| {
        let gateway = || {
            let way = remote::Transport::Socket(member_socket(runtime_dir, HOST));
            Gateway::join(&runtime_dir.join(BOARD), &way)?.run(keep_running)
        };
        let gateway = host.then(|| scope.spawn(gateway));
        let uplink = uplink.map(|(plan, port)| scope.spawn(|| run_uplink(plan, port, runtime_dir)));
        let parts: Vec<_> = gateway.into_iter().chain(uplink).collect();
        eprintln!("serving {} members", members.len());
        // If the gateway or the uplink ends, the whole process ends. Otherwise the members would
        // lose the host or the other hosts without any error message.
        let ended = || parts.iter().any(thread::ScopedJoinHandle::is_finished);
        broker.serve(|_| keep_running() && !ended())?;
        drop(broker);
        let cut_short = keep_running();
        for part in parts {
            match part.join() {
                Ok(Err(error)) if cut_short => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    })
}

/// Runs the uplink until a signal comes, or until the uplink fails.
fn run_uplink(plan: Plan, port: Port, runtime_dir: &Path) -> Result<(), MessageError> {
    let share = |interface: &String| share(runtime_dir, interface, &plan.named_nics);
    let shared = plan.shared().map(share).transpose()?;
    let options = uplink::Options {
        socket: member_socket(runtime_dir, UPLINK),
        port: Some(port),
        datagrams: None,
        members: plan.named_nics,
        peer_timeout: plan.peer_timeout,
        shared,
    };
    uplink::Uplink::join(options)?.run(|_| keep_running())
}

/// Runs the gateway of this VM until SIGINT or SIGTERM. With `socket`, runs the gateway for
/// processes of the host instead, as the member with that socket. The users of the Unix group may use the board.
pub(crate) fn join(
    runtime_dir: &Path,
    socket: Option<&Path>,
    unix_group: Option<u32>,
) -> Result<(), Failure> {
    interrupt::install()?;
    share_board(runtime_dir, unix_group)?;
    let way = socket.map_or(remote::Transport::Device, |socket| {
        remote::Transport::Socket(socket.to_owned())
    });
    let board = runtime_dir.join(BOARD);
    let mut gateway = Gateway::join(&board, &way)?;
    loop {
        let woken = match gateway.is_woken() {
            true => "",
            false => ", without interrupts",
        };
        eprintln!("joined as NIC {:012x}{woken}", gateway.nic());
        if let Some(time) = gateway.load_time() {
            eprintln!("{}", load_time(time));
            if time.is_uncached() {
                eprintln!("{}", uncached(time));
            }
        }
        match gateway.run(keep_running) {
            // In a VM the device outlives the host's process. The process that replaces it uses the
            // same device.
            Err(error) if socket.is_none() => eprintln!("{error}; the gateway joins again"),
            ended => return Ok(ended?),
        }
        drop(gateway);
        gateway = loop {
            match Gateway::join(&board, &way) {
                Ok(gateway) => break gateway,
                Err(_) if keep_running() => thread::sleep(REJOIN_PAUSE),
                Err(_) => return Ok(()),
            }
        };
    }
}

/// Returns what a load takes in this VM; `vicinity selftest` reads it.
fn load_time(time: LoadTime) -> String {
    format!(
        "a load from the region takes {} ns, one from other memory {} ns",
        time.region.as_nanos(),
        time.private.as_nanos()
    )
}

/// Returns the warning that loads from the region bypass the caches, and the remedy.
fn uncached(time: LoadTime) -> String {
    format!(
        "warning: this VM's kernel maps the region uncached: a load takes {} ns, and {} ns from other memory. \
            Messages of this VM are many times slower than from cached memory, and its atomic operations stall \
            all processors of the host. Load the module vicinity_wake in this VM (package vicinity-guest), then join again.",
        time.region.as_nanos(),
        time.private.as_nanos()
    )
}

/// Returns QEMU's options that make a VM a member.
pub(crate) fn qemu_args(runtime_dir: &Path, member: &str) -> [(&'static str, String); 2] {
    let path = value(&member_socket(runtime_dir, member));
    [
        ("-chardev", format!("socket,id=message,path={path}")),
        (
            "-device",
            "ivshmem-doorbell,chardev=message,vectors=1".to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_of_an_uncached_region_has_a_remedy() {
        let [region, private] = [180, 1].map(Duration::from_nanos);
        let text = uncached(LoadTime { region, private });
        assert!(text.contains("180 ns, and 1 ns") && text.contains("vicinity_wake"));
    }

    #[test]
    fn a_member_may_have_a_group() {
        let parts = |text| member(text).map(|member| (member.name, member.group)).ok();
        assert_eq!(parts("web"), Some(("web".to_owned(), None)));
        let grouped = Some(("web".to_owned(), Some("hpc".to_owned())));
        assert_eq!(parts("web=hpc"), grouped);
        assert!(parts("").is_none() && parts("a/b").is_none() && parts("a=").is_none());
    }
}
