//! Determines which accelerator works on this host by booting a kernel.
//!
//! `/dev/kvm` may exist, open and answer every ioctl while a guest hangs for ever (seen on
//! machines that are VMs themselves). Therefore [`detect`] boots a guest's kernel under KVM. The
//! kernel gets no root file system, and KVM works if the kernel prints that it misses one.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::host::{self, Tied};
use crate::interrupt;
use crate::scope::RunFolder;

/// How QEMU runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The processor runs the instructions.
    Kvm,
    /// QEMU translates the instructions; the guest is 10 to 20 times slower.
    Tcg,
}

impl Accel {
    /// QEMU's options for this accelerator.
    ///
    /// TCG emulates `rep movsb` a byte at a time; without the two flags the guest's kernel
    /// copies in a way that is several times faster there. With `one_thread`, one thread of QEMU emulates all CPUs of
    /// the guest; see [`Spec::one_thread`](crate::vm::Spec::one_thread).
    #[must_use]
    pub const fn qemu_args(self, one_thread: bool) -> [&'static str; 4] {
        let accel = match (self, one_thread) {
            (Self::Kvm, _) => return ["-accel", "kvm", "-cpu", "host"],
            (Self::Tcg, true) => "tcg,thread=single",
            (Self::Tcg, false) => "tcg,thread=multi",
        };
        ["-accel", accel, "-cpu", "max,-erms,-fsrm"]
    }

    /// The name for reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Kvm => "KVM (the processor runs the guests)",
            Self::Tcg => "TCG (QEMU emulates the guests' processors: KVM does not work here)",
        }
    }

    /// The name, as QEMU spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Longest boot that counts as working.
const LIMIT: Duration = Duration::from_secs(5);

/// What a kernel without a root file system prints once it has booted.
const BOOTED: &str = "Unable to mount root fs";

/// The best accelerator that can boot `kernel` here. The first call takes up to 5 s where
/// `/dev/kvm` exists; later calls return the same answer.
///
/// # Errors
/// QEMU cannot be started at all, or [`Error::Interrupted`].
pub fn detect(kernel: &Path) -> Result<Accel> {
    static ANSWER: Mutex<Option<Accel>> = Mutex::new(None);
    let mut answer = ANSWER.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(known) = *answer {
        return Ok(known);
    }
    let found = if Path::new("/dev/kvm").exists() && boots_under_kvm(kernel)? {
        Accel::Kvm
    } else {
        Accel::Tcg
    };
    tracing::debug!("accelerator: {}", found.name());
    *answer = Some(found);
    Ok(found)
}

fn boots_under_kvm(kernel: &Path) -> Result<bool> {
    let folder = RunFolder::new()?;
    let log = folder.path().join("console.log");
    let mut command = host::command("qemu-system-x86_64");
    command
        .args(Accel::Kvm.qemu_args(false))
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-m", "256", "-no-reboot", "-kernel"])
        .arg(kernel)
        .args(["-append", "console=ttyS0 quiet panic=-1", "-serial"])
        .arg(format!("file:{}", log.display()));
    let errors = folder.path().join("qemu.log");
    let errors = fs::File::create(&errors).context(|| format!("make {}", errors.display()))?;
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(errors);
    let mut qemu = Tied::spawn(command)?;
    match interrupt::poll("a boot under KVM", LIMIT, || qemu.ended()) {
        Ok(_) => Ok(fs::read_to_string(&log).is_ok_and(|text| text.contains(BOOTED))),
        Err(Error::Timeout { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}
