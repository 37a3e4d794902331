//! Which accelerator works here, found out by booting.
//!
//! `/dev/kvm` may exist, open and answer every ioctl while a guest hangs permanently (seen on
//! machines that are VMs themselves). So a guest's kernel is booted under KVM; it has no root
//! file system and must get as far as complaining about that.

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock};
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
    /// The processor runs them.
    Kvm,
    /// QEMU translates them, 10 to 20 times slower.
    Tcg,
}

impl Accel {
    /// QEMU's options for it.
    ///
    /// TCG emulates `rep movsb` a byte at a time; without the two flags the guest's kernel
    /// copies in a way that is several times faster there. What a guest's CPUs do there at the same time, they can
    /// do in one thread; see [`Spec::one_thread`](crate::vm::Spec::one_thread).
    #[must_use]
    pub const fn qemu_args(self, one_thread: bool) -> [&'static str; 4] {
        let accel = match (self, one_thread) {
            (Self::Kvm, _) => return ["-accel", "kvm", "-cpu", "host"],
            (Self::Tcg, true) => "tcg,thread=single",
            (Self::Tcg, false) => "tcg,thread=multi",
        };
        ["-accel", accel, "-cpu", "max,-erms,-fsrm"]
    }

    /// Its name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Kvm => "KVM (the processor runs the guests)",
            Self::Tcg => "TCG (QEMU emulates the guests' processors: KVM does not work here)",
        }
    }

    /// Its name, as QEMU spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Longest boot that counts as working: a host under load, or one that is a VM itself, takes its time.
const LIMIT: Duration = Duration::from_secs(20);

/// What a kernel without a root file system says when it has booted.
const BOOTED: &str = "Unable to mount root fs";

/// The environment variable that chooses the accelerator, `kvm` or `tcg`, where no option did.
const VARIABLE: &str = "VICINITY_ACCEL";

static CHOSEN: OnceLock<Accel> = OnceLock::new();

/// Have [`detect`] answer this accelerator, or fail, from now on. The first choice counts.
pub fn choose(accel: Accel) {
    // A second choice is the same option again.
    let _chosen = CHOSEN.set(accel);
}

/// The accelerator that was chosen by [`choose`] or by the variable `VICINITY_ACCEL`; otherwise the best one that
/// can boot `kernel` here. The first call takes up to 20 s where `/dev/kvm` exists and the processor can run VMs;
/// the answer is remembered for the process.
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
        Some(Accel::Tcg) => Accel::Tcg,
        chosen => match trouble_with_kvm(kernel)? {
            None => Accel::Kvm,
            Some(reason) if chosen.is_some() => return Err(Error::Accel(reason)),
            Some(reason) => {
                tracing::warn!("KVM is not used, so guests are emulated (TCG): {reason}");
                Accel::Tcg
            }
        },
    };
    *answer = Some(found);
    Ok(found)
}

/// The accelerator that was chosen; otherwise the best one as far as can be told without a kernel to boot. A host
/// may promise KVM and not keep the promise; [`detect`] finds that out.
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

/// Why KVM cannot be used, if it cannot.
fn trouble_with_kvm(kernel: &Path) -> Result<Option<String>> {
    match obstacle() {
        Some(reason) => Ok(Some(reason)),
        None => boot_under_kvm(kernel),
    }
}

/// What keeps QEMU from KVM, as far as the host says.
fn obstacle() -> Option<String> {
    let device = Path::new("/dev/kvm");
    if let Err(error) = fs::File::options().read(true).write(true).open(device) {
        return Some(format!("{} cannot be opened: {error}", device.display()));
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

/// Boot a kernel under KVM; why that failed, if it did.
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
    let mut qemu = Tied::spawn(command)?;
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
