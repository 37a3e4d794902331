//! `vicinity demo`: two real VMs, measured over Vicinity and over a Linux bridge.

use std::path::{Path, PathBuf};

use demo::{Options, SocketFiles};
use vm_harness::mpi::{COMPONENTS, Files};
use vm_harness::progress::Progress;

use super::failure::Failure;

/// Default folder for guest images, results and logs.
pub(crate) const FOLDER: &str = "target";

/// Runs the demo below `folder` (guest images, results, logs), comparing this channel with the bridge;
/// returns its table and where the results are.
pub(crate) fn run(channel: &str, folder: &Path) -> Result<String, Failure> {
    let options = options(folder)?.over(channel)?;
    let result = demo::run(&options, &Progress::start())?;
    let output = options.output.display();
    let elsewhere = match folder.to_str() {
        Some(FOLDER) | None => String::new(),
        Some(folder) => format!(" --folder {folder}"),
    };
    Ok(format!(
        "{result}\n\nResults: {output}/result.json, {output}/report.html\n\
         Keep two VMs running, with a shell in each: `{} demo --shell{elsewhere}`\n",
        options.vicinity.display()
    ))
}

/// Plays ping-pong between two VMs with messages, beside TCP; returns the table.
pub(crate) fn messages(folder: &Path) -> Result<String, Failure> {
    let options = options(folder)?;
    let result = demo::messages(&options, &Progress::start())?;
    let output = options.output.display();
    Ok(format!("{result}\nResults: {output}/message.json\n"))
}

/// Runs an MPI program in four VMs, on the message plane and over TCP; returns the table. `folder/mpi` has what
/// `make demo-mpi` builds.
pub(crate) fn mpi(folder: &Path) -> Result<String, Failure> {
    let options = options(folder)?;
    let built = folder.join("mpi");
    let files = Files {
        vicinity: options.vicinity.clone(),
        components: built.clone(),
        library: built.join("lib64/libmyriexpress.so"),
        program: built.join("figures"),
    };
    let components = COMPONENTS.map(|file| built.join(file));
    let mut needed: Vec<&Path> = components.iter().map(PathBuf::as_path).collect();
    needed.extend([files.library.as_path(), files.program.as_path()]);
    must_exist(&needed, "demo-mpi")?;
    let result = demo::mpi(&options, &files, &Progress::start())?;
    let output = options.output.display();
    Ok(format!("{result}\nResults: {output}/mpi.json\n"))
}

/// Runs unmodified TCP programs between two VMs by AF_VSOCK, and by TCP; returns the table. `folder/sockets` has what
/// `make demo-sockets` builds.
pub(crate) fn sockets(folder: &Path) -> Result<String, Failure> {
    let options = options(folder)?;
    let built = folder.join("sockets");
    let files = SocketFiles {
        agent: built.join("vicinity-agent"),
        library: built.join("libvicinity-sockets.so"),
    };
    must_exist(&[&files.agent, &files.library], "demo-sockets")?;
    let result = demo::sockets(&options, &files, &Progress::start())?;
    let output = options.output.display();
    Ok(format!("{result}\nResults: {output}/sockets.json\n"))
}

/// Boots the demo's VMs and opens a shell in each, until the session ends.
pub(crate) fn shell(channel: &str, folder: &Path) -> Result<(), Failure> {
    let options = options(folder)?.over(channel)?;
    Ok(demo::shell(&options, &Progress::start())?)
}

/// Boots the demo's VMs with traffic between them, and serves the page until a signal.
pub(crate) fn web(folder: &Path) -> Result<(), Failure> {
    let ended = demo::web(&options(folder)?, &Progress::start());
    match ended {
        // A signal is the ordinary way to end it.
        Err(vm_harness::error::HarnessError::Interrupted) => Ok(()),
        ended => Ok(ended?),
    }
}

/// Refuses to begin without a file that a target of the Makefile makes.
fn must_exist(files: &[&Path], target: &str) -> Result<(), Failure> {
    match files.iter().find(|file| !file.exists()) {
        Some(file) => Err(Failure::Usage(format!(
            "{} is missing; run `make {target}`",
            file.display()
        ))),
        None => Ok(()),
    }
}

fn options(folder: &Path) -> Result<Options, Failure> {
    vm_harness::interrupt::install()?;
    let program = std::env::current_exe().map_err(Failure::Program)?;
    Ok(Options::new(&program, folder))
}
