//! Determines by booting a kernel which accelerator works on this host.
//!
//! `/dev/kvm` may exist, open and answer every ioctl while a guest hangs permanently (seen on
//! machines that are VMs themselves). Therefore this module boots a guest's kernel under KVM without a root file
//! system. KVM works if the kernel prints that it cannot mount one.

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::host::{self, ChildProcess};
use crate::interrupt;
use crate::scope::RunFolder;

/// How QEMU runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The processor runs them.
    Kvm,
    /// QEMU translates them, 10 to 20 times slower.
    Tcg,
}

impl Accel {
    /// Returns QEMU's options for the accelerator.
    ///
    /// TCG emulates `rep movsb` a byte at a time; without the flags `erms` and `fsrm` the guest's kernel copies in a
    /// way that is several times faster under TCG. With `one_thread`, one thread of QEMU emulates all virtual CPUs;
    /// see [`Spec::one_thread`](crate::vm::Spec::one_thread).
    #[must_use]
    pub const fn qemu_args(self, one_thread: bool) -> [&'static str; 4] {
        let accel = match (self, one_thread) {
            (Self::Kvm, _) => return ["-accel", "kvm", "-cpu", "host"],
            (Self::Tcg, true) => "tcg,thread=single",
            (Self::Tcg, false) => "tcg,thread=multi",
        };
        ["-accel", accel, "-cpu", "max,-erms,-fsrm"]
    }

    /// Returns the accelerator's name for a report.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Kvm => "KVM (the processor runs the guests)",
            Self::Tcg => "TCG (QEMU emulates the guests' processors: KVM does not work here)",
        }
    }

    /// Returns the accelerator's name as QEMU spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Longest boot after which KVM counts as working. A boot is slow on a host under load, and on a host that is a VM
/// itself.
const LIMIT: Duration = Duration::from_secs(20);

/// The message that a kernel without a root file system prints when it has booted.
const BOOTED: &str = "Unable to mount root fs";

/// The environment variable that chooses the accelerator, `kvm` or `tcg`, if no option of the command line does.
const VARIABLE: &str = "VICINITY_ACCEL";

static CHOSEN: OnceLock<Accel> = OnceLock::new();

/// The reason why [`detect`] did not return KVM.
static REASON: OnceLock<String> = OnceLock::new();

/// Makes [`detect`] return this accelerator, or fail, from now on. Only the first call has an effect.
pub fn choose(accel: Accel) {
    // A second call comes from the same option, so it passes the same accelerator.
    let _chosen = CHOSEN.set(accel);
}

/// Returns the accelerator that was chosen by [`choose`] or by the variable `VICINITY_ACCEL`; otherwise the fastest
/// that can boot `kernel` here. The first call takes up to 20 s where `/dev/kvm` exists and the processor can run VMs;
/// the process caches the result.
///
/// # Errors
/// KVM was chosen and does not work here, QEMU cannot be started at all, or [`Error::Interrupted`].
pub fn detect(kernel: &Path) -> Result<Accel> {
    static ANSWER: Mutex<Option<Accel>> = Mutex::new(None);
    let mut answer = ANSWER.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(known) = *answer {
        return Ok(known);
    }
    let found = match chosen()? {
        Some(Accel::Tcg) => {
            REASON.get_or_init(|| "TCG was chosen by an option or a variable".to_owned());
            Accel::Tcg
        }
        chosen => match kvm_problem(kernel)? {
            None => Accel::Kvm,
            Some(reason) if chosen.is_some() => return Err(Error::Accel(reason)),
            Some(reason) => {
                tracing::warn!("KVM is not used, so guests are emulated (TCG): {reason}");
                REASON.get_or_init(|| reason);
                Accel::Tcg
            }
        },
    };
    *answer = Some(found);
    Ok(found)
}

/// Returns the reason why [`detect`] returned TCG; `None` before that, and if KVM works.
pub fn reason() -> Option<&'static str> {
    REASON.get().map(String::as_str)
}

/// Returns the accelerator that was chosen; otherwise the fastest that the host reports, without booting a kernel. A
/// host may report KVM although a guest hangs under it; only [`detect`] notices that.
///
/// # Errors
/// The variable `VICINITY_ACCEL` names no accelerator.
pub fn expected() -> Result<Accel> {
    let promised = || match obstacle() {
        None => Accel::Kvm,
        Some(_) => Accel::Tcg,
    };
    Ok(chosen()?.unwrap_or_else(promised))
}

fn chosen() -> Result<Option<Accel>> {
    if let Some(accel) = CHOSEN.get() {
        return Ok(Some(*accel));
    }
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().map(Some).map_err(Error::Accel),
        Err(_) => Ok(None),
    }
}

impl FromStr for Accel {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(format!(
                "there is no accelerator `{text}`: say `kvm` or `tcg`"
            )),
        }
    }
}

/// Returns the reason why KVM cannot be used, if there is one.
fn kvm_problem(kernel: &Path) -> Result<Option<String>> {
    match obstacle() {
        Some(reason) => Ok(Some(reason)),
        None => boot_under_kvm(kernel),
    }
}

/// Returns the reason why QEMU cannot use KVM, from what the host reports and without booting a kernel.
fn obstacle() -> Option<String> {
    let device = Path::new("/dev/kvm");
    if let Err(error) = fs::File::options().read(true).write(true).open(device) {
        return Some(format!("cannot open {}: {error}", device.display()));
    }
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_able = cfg!(not(target_arch = "x86_64")) || can_run_vms(&processor);
    (!is_able).then(|| {
        "the processor has neither `vmx` nor `svm`: switch virtualisation on in the firmware, or nested \
         virtualisation if this is a VM"
            .to_owned()
    })
}

/// Whether `/proc/cpuinfo` names the processor's extension for VMs: Intel's `vmx` or AMD's `svm`.
fn can_run_vms(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    let words = flags.next().unwrap_or_default().split_whitespace();
    words.into_iter().any(|word| matches!(word, "vmx" | "svm"))
}

/// Boots a kernel under KVM. Returns the reason if that failed.
fn boot_under_kvm(kernel: &Path) -> Result<Option<String>> {
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
    let said = fs::File::create(&errors).context(|| format!("make {}", errors.display()))?;
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(said);
    let mut qemu = ChildProcess::spawn(command)?;
    match interrupt::poll("a boot under KVM", LIMIT, || qemu.ended()) {
        Ok(_) if fs::read_to_string(&log).is_ok_and(|text| text.contains(BOOTED)) => Ok(None),
        Ok(_) => {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            let line = said.lines().last().unwrap_or("QEMU ended without a word");
            Ok(Some(format!("no kernel boots under it: {line}")))
        }
        Err(Error::Timeout { .. }) => Ok(Some(format!(
            "/dev/kvm opens, but no kernel boots under it within {} s",
            LIMIT.as_secs()
        ))),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_says_whether_it_can_run_vms() {
        let of = |flags: &str| {
            can_run_vms(&format!(
                "processor\t: 0\nflags\t\t: fpu {flags} sse\nbugs\t: svm\n"
            ))
        };
        assert!(of("vmx") && of("svm"));
        assert!(!of("vmx_flags") && !of("") && !can_run_vms(""));
    }

    #[test]
    fn accelerators_have_names() {
        assert_eq!("kvm".parse(), Ok(Accel::Kvm));
        assert_eq!("tcg".parse(), Ok(Accel::Tcg));
        assert!("KVM".parse::<Accel>().unwrap_err().contains("`KVM`"));
    }
}
