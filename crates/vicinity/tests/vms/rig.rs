//! The setup of every test here: exclusive use of the machine, a daemon, and VMs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use observe::proc::Proc;
use rustix::process::{Pid, Signal, setpriority_process};
use vm_harness::accel;
use vm_harness::image::{Image, Recipe};
use vm_harness::scope::{self, RunFolder};
use vm_harness::vm::{Spec, Vm};

use crate::common::{Daemon, Pauses, vicinity};

/// Longest time in which a guest boots, even on a busy machine.
const BOOT: Duration = Duration::from_secs(120);

/// Memory of a guest.
pub(crate) const MEMORY_MIB: u32 = 320;

static MACHINE: Mutex<()> = Mutex::new(());

/// A daemon with its folder. VMs started with it must be dropped first.
pub(crate) struct Rig {
    // Fields are dropped in this order.
    daemon: Option<Daemon>,
    config: Option<String>,
    /// The command that starts the daemon.
    by: Vec<String>,
    folder: RunFolder,
    image: Image,
    _machine: Option<MutexGuard<'static, ()>>,
}

impl Rig {
    /// Starts a daemon with this configuration; with the default configuration for `None`.
    pub(crate) fn new(config: Option<&str>) -> Self {
        Self::start(config, &[], Some(take_machine()))
    }

    /// Starts a daemon in its own network namespace, which ends with the daemon.
    pub(crate) fn isolated(config: &str) -> Self {
        Self::start(Some(config), &UNSHARED, Some(take_machine()))
    }

    /// Starts a daemon in an existing network namespace.
    pub(crate) fn within(namespace: &str, config: &str) -> Self {
        Self::start(Some(config), &inside_of(namespace), Some(take_machine()))
    }

    /// Returns another host beside this one. This host must outlive it.
    pub(crate) fn beside(&self, config: &str) -> Self {
        Self::start(Some(config), &UNSHARED, None)
    }

    /// Returns another host beside this one, in an existing network namespace.
    pub(crate) fn beside_within(&self, namespace: &str, config: &str) -> Self {
        Self::start(Some(config), &inside_of(namespace), None)
    }

    /// Puts the program under test into the guests that are booted from now on.
    pub(crate) fn with_program(mut self) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_vicinity"));
        let folder = home().join("with-program");
        self.image = self.image.with_program(program, &folder).unwrap();
        self
    }

    /// Puts the program under test, Open MPI and these files into the guests that are booted from now on.
    pub(crate) fn with_mpi(mut self, files: &vm_harness::mpi::Files) -> Self {
        let image = vm_harness::mpi::recipe()
            .build(&home().join("images"))
            .unwrap();
        self.image = files.put_into(&image, &home().join("with-mpi")).unwrap();
        self
    }

    /// Puts these Debian packages into the guests that are booted from now on.
    pub(crate) fn with_packages(mut self, packages: &[&str]) -> Self {
        let recipe = packages.iter().fold(recipe(), |all, one| all.package(one));
        self.image = recipe.build(&home().join("images")).unwrap();
        self
    }

    /// Puts the program under test, these Debian packages and these files of this host, each with its path in a guest,
    /// into the guests that are booted from now on.
    pub(crate) fn with_packages_and_files(
        mut self,
        packages: &[&str],
        files: &[(PathBuf, PathBuf)],
        folder: &str,
    ) -> Self {
        self = self.with_packages(packages);
        let program = Path::new(env!("CARGO_BIN_EXE_vicinity"));
        let files: Vec<_> = files
            .iter()
            .map(|(file, inside)| (file.as_path(), inside.as_path()))
            .collect();
        let image = self
            .image
            .with_program_and_files(program, &files, &home().join(folder));
        self.image = image.unwrap();
        self
    }

    /// Puts a file of this host into the guests that are booted from now on.
    pub(crate) fn with_file(mut self, file: &Path, inside: &str, folder: &str) -> Self {
        let folder = home().join(folder);
        self.image = self
            .image
            .with_file(file, Path::new(inside), &folder)
            .unwrap();
        self
    }

    /// Returns QEMU's option for the accelerator that works here.
    pub(crate) fn accel(&self) -> [&'static str; 2] {
        ["-accel", accel::detect(&self.image.kernel).unwrap().name()]
    }

    /// Returns the release of the guests' kernel.
    pub(crate) fn kernel(&self) -> &str {
        &self.image.manifest.kernel_release
    }

    fn start(config: Option<&str>, by: &[&str], machine: Option<MutexGuard<'static, ()>>) -> Self {
        let mut rig = Self {
            daemon: None,
            config: config.map(str::to_owned),
            by: by.iter().map(|word| (*word).to_owned()).collect(),
            folder: RunFolder::new().unwrap(),
            image: recipe().build(&home().join("images")).unwrap(),
            _machine: machine,
        };
        rig.serve();
        rig
    }

    /// Starts the daemon.
    pub(crate) fn serve(&mut self) {
        let program = env!("CARGO_BIN_EXE_vicinity");
        let mut command = match self.by.split_first() {
            None => vm_harness::host::command(program),
            Some((first, rest)) => {
                let mut by = vm_harness::host::command(first);
                by.args(rest).arg(program);
                by
            }
        };
        command.stdin(Stdio::null());
        let daemon = Daemon::start_by(command, self.folder.path(), self.config.as_deref());
        self.daemon = Some(daemon);
    }

    /// Ends the daemon by a signal. After SIGTERM, its exit code must be 0.
    pub(crate) fn end(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.signal(signal);
        let code = daemon.ended();
        assert_eq!(code, (signal == Signal::TERM).then_some(0));
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Waits until a port is in this state, at most for as long as a guest may take to boot.
    pub(crate) fn until_state(&self, vm: &str, state: &str) {
        let end = Instant::now() + BOOT;
        let mut pauses = Pauses::new();
        while self.daemon().port(vm)["state"] != state {
            assert!(
                Instant::now() < end,
                "{} is not {state}",
                self.daemon().port(vm)
            );
            pauses.wait();
        }
    }

    /// Returns the daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon().child.id()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the output of `vicinity qemu-args` for a VM, as words.
    pub(crate) fn qemu_args(&self, vm: &str) -> Vec<String> {
        self.qemu_args_with(vm, &[])
    }

    /// Returns the output of `vicinity qemu-args` with these additional arguments, as words.
    pub(crate) fn qemu_args_with(&self, vm: &str, more: &[&str]) -> Vec<String> {
        let mut command = vicinity();
        command.args(["qemu-args", vm, "--one-line"]).args(more);
        if !more.contains(&"--memory") {
            command.args(["--memory", &format!("{MEMORY_MIB}M")]);
        }
        command.arg("--runtime-dir").arg(self.folder().join("run"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap()
    }

    /// Returns a VM without any NIC.
    pub(crate) fn bare(&self, vm: &str) -> Spec {
        let mut spec = Spec::new(vm, &home().join("logs"));
        spec.memory_mib = MEMORY_MIB;
        spec
    }

    /// Returns a VM with more memory, and else exactly the options of `vicinity qemu-args`.
    pub(crate) fn spec_with_memory(&self, vm: &str, mib: u32) -> Spec {
        let mut spec = self.bare(vm);
        spec.memory_mib = mib;
        spec.qemu_args = self.qemu_args_with(vm, &["--memory", &format!("{mib}M")]);
        spec
    }

    /// Returns a VM with exactly the options of `vicinity qemu-args`.
    pub(crate) fn spec(&self, vm: &str) -> Spec {
        let mut spec = self.bare(vm);
        spec.qemu_args = self.qemu_args(vm);
        spec
    }

    /// Starts QEMU. The guest is booting when this function returns.
    pub(crate) fn power_on(&self, spec: Spec) -> Vm {
        Vm::boot(&self.image, spec).unwrap()
    }

    /// Starts a QEMU that waits for the migration of a VM to this host.
    pub(crate) fn incoming(&self, spec: Spec) -> Vm {
        Vm::incoming(&self.image, spec).unwrap()
    }

    /// Boots VMs in parallel, and returns when they can be used.
    pub(crate) fn boot<const N: usize>(&self, specs: [Spec; N]) -> [Vm; N] {
        let vms = specs.map(|spec| self.power_on(spec));
        let _first = vms.each_ref().map(Preferred::over_other_vms);
        for vm in &vms {
            vm.wait_ready(BOOT).unwrap();
        }
        vms
    }

    /// Boots a VM with the options of `vicinity qemu-args` for each name. VM number N of them, from
    /// 1, has the address [`ip`]`(N)`. The ports are running when this function returns.
    pub(crate) fn boot_named<const N: usize>(&self, names: [&str; N]) -> [Vm; N] {
        self.boot_running(names.map(|name| self.spec(name)))
    }

    /// Boots VMs as [`Self::boot_named`] does, each with `pairs` CPUs and queue pairs.
    pub(crate) fn boot_with_pairs<const N: usize>(&self, names: [&str; N], pairs: u32) -> [Vm; N] {
        let options = ["--queues", &pairs.to_string()];
        self.boot_running(names.map(|name| {
            let mut spec = self.spec(name);
            spec.vcpus = pairs;
            spec.one_thread = true;
            spec.qemu_args = self.qemu_args_with(name, &options);
            spec
        }))
    }

    /// Boots VMs as [`Self::boot_named`] does, with these options.
    pub(crate) fn boot_running<const N: usize>(&self, specs: [Spec; N]) -> [Vm; N] {
        let vms = self.boot(specs);
        for (number, vm) in (1..).zip(&vms) {
            crate::guest::give_address(vm, number);
            self.until_state(vm.name(), "running");
        }
        vms
    }
}

/// The priority of a VM that boots, as nice(2) counts it.
const BOOTING: i32 = -10;

/// Gives a VM that boots processors before other VMs, which a test keeps busy meanwhile. The VM has the normal priority again when
/// this is dropped.
pub(crate) struct Preferred(u32);

impl Preferred {
    pub(crate) fn over_other_vms(vm: &Vm) -> Self {
        let preferred = Self(vm.id());
        preferred.set_priority(BOOTING);
        preferred
    }

    fn set_priority(&self, priority: i32) {
        for thread in Proc::default().threads(self.0) {
            let thread = Pid::from_raw(thread.try_into().unwrap());
            // The thread may have ended.
            let _ended = setpriority_process(thread, priority);
        }
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        self.set_priority(0);
    }
}

/// Returns the recipe of the guests' image, with the kernel of the Debian package that
/// `VICINITY_GUEST_KERNEL` names, if set.
fn recipe() -> Recipe {
    let recipe = Recipe::default()
        .package("dropbear-bin")
        .package("nftables")
        .package("socat")
        .module("nf_tables")
        .module("uio")
        .module("virtiofs")
        .module("vmw_vsock_virtio_transport");
    match std::env::var("VICINITY_GUEST_KERNEL") {
        Ok(package) => recipe.kernel(&package),
        Err(_) => recipe,
    }
}

/// Runs a command in its own network namespace.
const UNSHARED: [&str; 2] = ["unshare", "--net"];

/// Runs a daemon in a network namespace, with the priority of `vicinity.service`.
fn inside_of(namespace: &str) -> [&str; 7] {
    ["nice", "-n", "-10", "ip", "netns", "exec", namespace]
}

/// Gives the calling test exclusive use of the machine until the returned value is dropped.
pub(crate) fn take_machine() -> MutexGuard<'static, ()> {
    // A failed test leaves nothing behind that would affect the next test, so a poisoned lock is no
    // problem.
    let machine = MACHINE.lock().unwrap_or_else(|failed| failed.into_inner());
    scope::sweep().unwrap();
    machine
}

/// Returns the configuration of a network `lan` of two VMs with this number of workers. QEMU
/// listens for `blue`, Vicinity for `red`.
pub(crate) fn shared_by_workers(workers: u32) -> String {
    format!(
        "
[[network]]
name = \"lan\"
workers = {workers}
[[network.port]]
vm = \"red\"
mode = \"server\"
[[network.port]]
vm = \"blue\"
mode = \"client\"
"
    )
}

/// Returns the IP address of a VM.
pub(crate) fn ip(number: u8) -> String {
    format!("10.98.0.{number}")
}

/// Prints the next step. A failed test shows its steps.
pub(crate) fn step(what: &str) {
    println!("step: {what}");
}

/// Returns the folder for files that outlive a test.
pub(crate) fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("vms")
}

/// Returns the command that runs a program of the host in the network namespace of a process.
pub(crate) fn inside(pid: u32, words: &[&str]) -> Command {
    let mut command = vm_harness::host::command("nsenter");
    command
        .args(["--net", "--target", &pid.to_string()])
        .args(words);
    command
}
