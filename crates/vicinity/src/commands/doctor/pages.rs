//! How much of a VM's memory consists of huge pages.
//!
//! Under KVM the processor translates each address of a guest in two dimensions. A miss of its TLB takes up to 24
//! loads of page table entries if both tables have pages of 4 KiB, and up to 15 if both have pages of 2 MiB (Intel
//! SDM 3, 30.3; AMD APM 2, 15.25); and an entry of the TLB covers 512 times as much.

use std::fs;
use std::io;

use super::check::Check;
use crate::table;

pub(super) const NAME: &str = "VM's pages";

/// A VM is too small for a warning below this.
const SMALL: u64 = 32 << 20;

/// The shared memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// In use.
    resident: u64,
    /// Of that, mapped as huge pages.
    huge: u64,
}

impl Pages {
    /// Reads the shared memory of a process.
    ///
    /// # Errors
    /// The kernel refuses: the process is another user's, or has ended.
    pub(super) fn of(process: u32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{process}/smaps")).map(|text| Self::parse(&text))
    }

    /// Parses `/proc/PID/smaps` (`proc_pid_smaps(5)`): for each mapping a line of its addresses and permissions, and
    /// lines of figures. `Rss` does not include pages of hugetlb.
    fn parse(text: &str) -> Self {
        let mut pages = Self::default();
        let mut is_shared = false;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(key), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            if !key.ends_with(':') {
                is_shared = value.ends_with('s');
                continue;
            }
            let bytes = value.parse::<u64>().unwrap_or(0).saturating_mul(1024);
            let (resident, huge) = match key {
                "Rss:" => (bytes, 0),
                "ShmemPmdMapped:" | "FilePmdMapped:" => (0, bytes),
                "Shared_Hugetlb:" | "Private_Hugetlb:" => (bytes, bytes),
                _ => continue,
            };
            if is_shared {
                pages.resident = pages.resident.saturating_add(resident);
                pages.huge = pages.huge.saturating_add(huge);
            }
        }
        pages
    }
}

/// Judges the pages of a VM.
pub(super) fn check(vm: &str, process: u32, pages: io::Result<Pages>) -> Check {
    let pages = match pages {
        Ok(pages) => pages,
        Err(error) => {
            let found = format!("{vm}'s memory (process {process}) cannot be read: {error}");
            return Check::warn(NAME, found, "run `vicinity doctor` as root");
        }
    };
    let found = format!(
        "{vm}: {} of {} in huge pages",
        table::bytes(pages.huge),
        table::bytes(pages.resident)
    );
    if pages.resident < SMALL || pages.huge >= pages.resident / 2 {
        return Check::ok(NAME, found);
    }
    Check::warn(
        NAME,
        format!(
            "{found}; under KVM a TLB miss in the rest takes up to 24 loads of page table entries, and up to 15 in \
             huge pages"
        ),
        format!(
            "as root, then start the VM again: `echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled`; or \
             reserve huge pages and use what `vicinity qemu-args {vm} --hugetlb` or `vicinity libvirt-xml {vm} \
             --hugetlb` prints"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    /// As Linux prints it, abridged: a VM's memory as shmem, as hugetlb, and private memory of QEMU.
    const SMAPS: &str = "\
7f1c00000000-7f1c20000000 rw-s 00000000 00:01 4106 /memfd:memory-backend-memfd (deleted)
Size:             524288 kB
KernelPageSize:        4 kB
Rss:              409600 kB
Pss:              204800 kB
ShmemPmdMapped:   307200 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
VmFlags: rd wr sh mr mw me ms hg
7f1c40000000-7f1c60000000 rw-s 00000000 00:0f 4107 /memfd:memory-backend-memfd (deleted)
Rss:                   0 kB
Shared_Hugetlb:   102400 kB
Private_Hugetlb:   20480 kB
7f1c80000000-7f1c81000000 rw-p 00000000 00:00 0
Rss:               16384 kB
AnonHugePages:     16384 kB
ShmemPmdMapped:        0 kB
";

    #[test]
    fn shared_memory_is_counted_and_private_memory_is_not() {
        let mib = |size: u64| size << 20;
        let expected = Pages {
            resident: mib(400) + mib(120),
            huge: mib(300) + mib(120),
        };
        assert_eq!(Pages::parse(SMAPS), expected);
        assert_eq!(Pages::parse(""), Pages::default());
    }

    #[test]
    fn a_vm_without_huge_pages_is_named_with_the_cost_and_the_remedy() {
        let pages = |resident: u64, huge: u64| {
            let (resident, huge) = (resident << 20, huge << 20);
            check("web", 42, Ok(Pages { resident, huge }))
        };
        assert_eq!(pages(400, 200).verdict, Verdict::Ok);
        assert_eq!(pages(16, 0).verdict, Verdict::Ok);
        let slow = pages(400, 100);
        assert_eq!(slow.verdict, Verdict::Warn);
        assert!(slow.found.contains("web: ") && slow.found.contains("24 loads"));
        let remedy = slow.remedy.unwrap();
        assert!(remedy.contains("qemu-args web --hugetlb"), "{remedy}");
    }

    #[test]
    fn a_process_that_may_not_be_read_is_reported() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let check = check("web", 42, Err(refused));
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("process 42"), "{check:?}");
    }

    #[test]
    fn this_process_has_shared_memory() {
        Pages::of(std::process::id()).unwrap();
    }
}
