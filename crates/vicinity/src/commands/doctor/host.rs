//! Checks of the kernel, its limits, memory, and the permissions of this process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, MemfdFlags, access};
use rustix::process::{Resource, geteuid, getrlimit};

use super::check::Check;
use crate::table;

/// Memory for two small guests.
const ENOUGH_MEMORY: u64 = 1 << 30;

/// Descriptors for 64 ports, with a reserve: a port takes about 16.
const ENOUGH_DESCRIPTORS: u64 = 4096;

pub(super) fn checks(runtime_dir: &Path) -> Vec<Check> {
    vec![
        user(),
        runtime_folder(runtime_dir),
        memfd(),
        tun(),
        descriptors(),
        memory(),
        hugepages(),
        cgroups(),
        namespaces(),
        landlock(),
        seccomp(),
    ]
}

fn user() -> Check {
    if geteuid().is_root() {
        return Check::ok("user", "root");
    }
    let remedy = "run as root if a network has an uplink; without an uplink, an ordinary user who can write to \
        the runtime folder is enough";
    Check::warn(
        "user",
        "not root: an uplink with a tap needs CAP_NET_ADMIN",
        remedy,
    )
}

fn runtime_folder(path: &Path) -> Check {
    let name = "runtime folder";
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(path),
    };
    let shown = path.display();
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Check::ok(name, format!("this user can write to {shown}")),
        Err(error) => Check::missing(
            name,
            format!("this user cannot write to {shown}: {error}"),
            "run as root, or choose another folder with --runtime-dir",
        ),
    }
}

fn memfd() -> Check {
    match rustix::fs::memfd_create("vicinity-doctor", MemfdFlags::CLOEXEC) {
        Ok(_) => Check::ok("memfd", "the kernel can share guests' memory"),
        Err(error) => Check::missing(
            "memfd",
            format!("the kernel does not create memfds: {error}"),
            "use a kernel with CONFIG_MEMFD_CREATE, Linux 5.4 or newer",
        ),
    }
}

fn tun() -> Check {
    let path = "/dev/net/tun";
    if Path::new(path).exists() {
        return Check::ok("tun", format!("{path} exists, for uplinks"));
    }
    let found = format!("no {path}: networks cannot have an uplink");
    Check::warn("tun", found, "as root: `modprobe tun`")
}

fn descriptors() -> Check {
    let name = "open files";
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < ENOUGH_DESCRIPTORS => Check::warn(
            name,
            format!("at most {limit}: enough for {} ports", limit / 16),
            "raise the limit: `ulimit -Hn 65536` as root, or LimitNOFILE=65536 in a systemd unit",
        ),
        Some(limit) => Check::ok(name, format!("at most {limit}")),
        None => Check::ok(name, "no limit"),
    }
}

fn memory() -> Check {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(available) = figure(&text, "MemAvailable:") else {
        return Check::warn("memory", "cannot read /proc/meminfo", "mount /proc");
    };
    let bytes = available * 1024;
    let found = format!("{} free", table::bytes(bytes));
    if bytes < ENOUGH_MEMORY {
        let remedy = "stop other programs: two small guests need 1 GB";
        return Check::warn("memory", found, remedy);
    }
    Check::ok("memory", found)
}

/// The kernel's setting for transparent huge pages of shared memory.
const SHARED_HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

fn hugepages() -> Check {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let reserved = figure(&text, "HugePages_Total:").unwrap_or(0);
    let shared = fs::read_to_string(SHARED_HUGE_PAGES).unwrap_or_default();
    huge_pages(reserved, &shared)
}

/// Checks that VMs' memory gets huge pages. This shared memory is shmem, to which the setting for anonymous
/// memory does not apply. With pages of 4 KiB, a VM's processor walks both page tables with up to 24 loads
/// where huge pages need 15, and has 512 times as many entries.
fn huge_pages(reserved: u64, shared: &str) -> Check {
    let name = "huge pages";
    // `always within_size advise [never] deny force`
    let chosen = shared.split(['[', ']']).nth(1).unwrap_or("never");
    let found = format!("{reserved} reserved, shared memory: {chosen}");
    match chosen {
        "never" | "deny" if reserved == 0 => Check::warn(
            name,
            format!(
                "{found}; VMs work with pages of 4 KiB: under KVM a TLB miss takes up to 24 loads of page table \
                 entries (15 with huge pages), so VMs run slower than with private memory"
            ),
            "as root: `echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled`; or reserve huge pages \
             and use what `vicinity qemu-args VM --hugetlb` prints",
        ),
        _ => Check::ok(name, found),
    }
}

/// Returns the number that follows `key` in `/proc/meminfo`.
fn figure(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cgroups() -> Check {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let found = match (
        text.lines().any(|line| !line.starts_with("0::")),
        text.is_empty(),
    ) {
        (_, true) => "none; serving does not need them",
        (true, _) => "version 1 controllers; serving does not need them",
        (false, _) => "version 2; serving does not need them",
    };
    Check::ok("cgroups", found)
}

/// The consequence if a stage of the data planes' sandbox does not work.
const SANDBOX: &str = "only the other stages of the sandbox confine data planes";

/// Tries to create namespaces in a child process, because `unshare` cannot be undone.
fn namespaces() -> Check {
    let name = "user namespaces";
    let tried = Command::new("unshare")
        .args(["--user", "--map-current-user", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => {
            Check::ok(name, "data planes run in their own namespaces")
        }
        Ok(_) => Check::warn(
            name,
            format!("the kernel refuses them: {SANDBOX}"),
            "run as root; or, as root: `sysctl user.max_user_namespaces=10000`, \
             `sysctl kernel.unprivileged_userns_clone=1` (Debian), \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu)",
        ),
        Err(error) => Check::warn(
            name,
            format!("not tested, because `unshare` does not start: {error}"),
            "as root: `apt-get install util-linux`",
        ),
    }
}

fn landlock() -> Check {
    match sandbox::landlock_version() {
        0 => Check::warn(
            "landlock",
            format!("not available: {SANDBOX}"),
            "use Linux 5.13 or newer with `landlock` in its `lsm=` list",
        ),
        version => Check::ok("landlock", format!("version {version}")),
    }
}

fn seccomp() -> Check {
    match sandbox::has_seccomp() {
        true => Check::ok("seccomp", "the kernel can filter system calls"),
        false => Check::warn(
            "seccomp",
            format!("not available: {SANDBOX}"),
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn shared_memory_without_huge_pages_has_a_warning() {
        let never = huge_pages(0, "always within_size advise [never] deny force\n");
        assert_eq!(never.verdict, Verdict::Warn);
        assert!(never.found.contains("4 KiB"), "{}", never.found);
        for (reserved, shared) in [(0, "always within_size [advise] never\n"), (64, "[never]")] {
            assert_eq!(
                huge_pages(reserved, shared).verdict,
                Verdict::Ok,
                "{shared}"
            );
        }
        // A kernel without huge pages.
        assert_eq!(huge_pages(0, "").verdict, Verdict::Warn);
    }

    #[test]
    fn figures_are_found() {
        let text = "MemTotal:  24 kB\nMemAvailable:   1024 kB\nHugePages_Total:       3\n";
        assert_eq!(figure(text, "MemAvailable:"), Some(1024));
        assert_eq!(figure(text, "HugePages_Total:"), Some(3));
        assert_eq!(figure(text, "Other:"), None);
    }
}
