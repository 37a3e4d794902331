//! Keeps the demo's VMs running with traffic between them, and shows them on the page of `vicinity web`.

use std::time::Duration;

use super::options::Options;
use super::pair::Pair;
use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::progress::Progress;
use vm_harness::vm::Vm;
use vm_harness::{interrupt, workload};

/// Longest time for starting the workload in a guest.
const START: Duration = Duration::from_secs(30);

/// Boots the demo's two VMs, has them exchange the demo's traffic in turn over both channels, and serves the page until
/// Ctrl-C or SIGTERM. The page's address is on standard output.
///
/// # Errors
/// As for [`super::run`].
pub fn web(options: &Options, progress: &Progress) -> Result<()> {
    let pair = Pair::start(options, progress)?;
    let [client, server] = &pair.vms;
    workload::serve(server)?;
    exchange(client)?;
    let folder = pair.channels.iter().find_map(|it| it.runtime_dir());
    let folder = folder.ok_or_else(|| {
        Error::Host("the page shows a daemon, and this channel has none; use the switch".to_owned())
    })?;
    progress.step(&format!(
        "the page of two VMs with traffic; to record it: vicinity --runtime-dir {} top --record FILE",
        folder.display()
    ));
    let mut command = host::command(&options.vicinity);
    command.arg("--runtime-dir").arg(folder).arg("web");
    let mut page = ChildProcess::spawn(command)?;
    loop {
        interrupt::sleep(Duration::from_millis(200))?;
        if let Some(status) = page.ended()? {
            return Err(Error::Host(format!(
                "`{}` ended with {status}",
                page.command()
            )));
        }
    }
}

/// Starts the demo's workloads in a guest, one after another until the VM stops.
fn exchange(client: &Vm) -> Result<()> {
    let rounds: Vec<String> = [1, 2]
        .map(|network| {
            let target = channel::address(network, 2);
            format!(
                "iperf3 -c {target} -t 4; iperf3 -c {target} -u -b 0 -l 1024 -t 3; ping -c 20 -i 0.1 {target}"
            )
        })
        .into();
    let rounds = rounds.join("; ");
    let forever = format!(
        "setsid bash -c 'while :; do {rounds}; sleep 1; done' </dev/null >/dev/null 2>&1 &"
    );
    client.check(&forever, START).map(drop)
}
