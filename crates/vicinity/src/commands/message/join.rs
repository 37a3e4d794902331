//! The message plane between members: VMs of this host, and the host itself.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lab::interrupt;
use message::remote::{self, Gateway, Member, Switchboard};

use crate::commands::failure::Failure;
use crate::name;
use crate::processes::message::uplink::Way;

/// Where members' sockets are, below the runtime directory.
pub(crate) const FOLDER: &str = "message-plane";

/// The board of a VM or of the host, below the runtime directory.
pub(crate) const BOARD: &str = "message";

/// The member that is the host.
pub(crate) const HOST: &str = "host";

pub(crate) fn socket(runtime_dir: &Path, member: &str) -> PathBuf {
    runtime_dir.join(FOLDER).join(format!("{member}.sock"))
}

/// Between two attempts to join again.
const AGAIN: Duration = Duration::from_millis(100);

/// A member as it is written: `NAME`, or `NAME=GROUP`.
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

/// Join these members until SIGINT or SIGTERM. If the host is one of them, be its gateway too; and
/// the way to other hosts, if there is one.
pub(crate) fn serve(runtime_dir: &Path, members: &[Member], way: &Way) -> Result<(), Failure> {
    interrupt::install()?;
    let mut members = members.to_vec();
    let uplink = way.uplink().map(|uplink| {
        let plan = uplink.plan(&mut members);
        let open = plan.and_then(|plan| plan.open().map(|port| (plan, port)));
        open.map_err(|error| {
            let interface = &uplink.interface;
            Failure::Usage(format!("the uplink {interface} cannot be used: {error}"))
        })
    });
    let uplink = uplink.transpose()?;
    let host = members.iter().any(|member| member.name == HOST);
    let mut switchboard = Switchboard::new(&runtime_dir.join(FOLDER), &members)?;
    thread::scope(|scope| {
        let gateway = || {
            let way = remote::Transport::Socket(socket(runtime_dir, HOST));
            Gateway::join(&runtime_dir.join(BOARD), &way)?.run(go_on)
        };
        let gateway = host.then(|| scope.spawn(gateway));
        let uplink = uplink.map(|(plan, port)| scope.spawn(|| plan.run(port, runtime_dir)));
        let parts: Vec<_> = gateway.into_iter().chain(uplink).collect();
        eprintln!("serving {} members", members.len());
        // Without one of its parts somebody would be missing, and nobody would know.
        let ended = || parts.iter().any(thread::ScopedJoinHandle::is_finished);
        switchboard.serve(|_| go_on() && !ended())?;
        drop(switchboard);
        let cut_short = go_on();
        for part in parts {
            match part.join() {
                Ok(Err(error)) if cut_short => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    })
}

/// Be the gateway of this VM until SIGINT or SIGTERM; or of processes of the host, as the member
/// with that socket.
pub(crate) fn join(runtime_dir: &Path, socket: Option<&Path>) -> Result<(), Failure> {
    interrupt::install()?;
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
        match gateway.run(go_on) {
            // In a VM the device stays, and the host's next process has it.
            Err(error) if socket.is_none() => eprintln!("{error}: joining again"),
            ended => return Ok(ended?),
        }
        drop(gateway);
        gateway = loop {
            match Gateway::join(&board, &way) {
                Ok(gateway) => break gateway,
                Err(_) if go_on() => thread::sleep(AGAIN),
                Err(_) => return Ok(()),
            }
        };
    }
}

/// QEMU's options that make a VM a member.
pub(crate) fn qemu_args(runtime_dir: &Path, member: &str) -> String {
    let socket = socket(runtime_dir, member);
    format!(
        "-chardev socket,id=message,path={}\n-device ivshmem-doorbell,chardev=message,vectors=1\n",
        socket.display()
    )
}

/// Whether no signal came.
pub(crate) fn go_on() -> bool {
    interrupt::check().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_may_have_a_group() {
        let parts = |text| member(text).map(|member| (member.name, member.group)).ok();
        assert_eq!(parts("web"), Some(("web".to_owned(), None)));
        let grouped = Some(("web".to_owned(), Some("hpc".to_owned())));
        assert_eq!(parts("web=hpc"), grouped);
        assert!(parts("").is_none() && parts("a/b").is_none() && parts("a=").is_none());
    }
}
