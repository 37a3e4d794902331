//! Finds the CPU control group of a VM, and reads how long the group's cap throttled it.
//!
//! Versions 1 and 2 of control groups differ in paths, names and units, and a host can mount both. The
//! scheduler does not count throttled time as time that a thread waits for a CPU, so the report shows
//! it separately.

use std::fs;
use std::path::{Path, PathBuf};

use crate::text::number_after;

/// The folders where the CPU controller's groups are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    v1: Option<PathBuf>,
    v2: Option<PathBuf>,
}

/// A CPU control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    folder: PathBuf,
    version: u8,
    path: String,
}

/// The state of a group at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The group's weight among its siblings: 100 (version 2) or 1024 (version 1) if no program set it.
    pub weight: Option<u64>,
    /// Total nanoseconds for which the group's cap throttled it.
    pub throttled_ns: Option<u64>,
}

impl Mounts {
    /// Parses `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`). Field 5 is the mount point. Type,
    /// source and options follow a field that is a single dash.
    #[must_use]
    pub fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup2") => mounts.v2 = Some(point),
                Some("cgroup") => {
                    let options = right.nth(1).unwrap_or_default();
                    if options.split(',').any(|option| option == "cpu") {
                        mounts.v1 = Some(point);
                    }
                }
                _ => {}
            }
        }
        mounts
    }

    /// Returns the group of a process from its `/proc/PID/cgroup` (`cgroups(7)`: `id:controllers:path`,
    /// for version 2 `0::path`). Returns `None` for the root group, which contains all processes.
    #[must_use]
    pub fn group(&self, cgroup: &str) -> Option<Group> {
        let find = |wanted: &dyn Fn(&str) -> bool| {
            cgroup.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                wanted(parts.next()?).then(|| parts.next())?
            })
        };
        let v1 = find(&|controllers| controllers.split(',').any(|one| one == "cpu"));
        let (mount, path, version) = match (v1, &self.v1) {
            (Some(path), Some(mount)) => (mount, path, 1),
            _ => (self.v2.as_ref()?, find(&str::is_empty)?, 2),
        };
        let below = path.strip_prefix('/').filter(|below| !below.is_empty())?;
        // A path with `..` leads out of the cgroup namespace of this process.
        let outside = Path::new(below)
            .components()
            .any(|part| part.as_os_str() == "..");
        (!outside).then(|| Group {
            folder: mount.join(below),
            version,
            path: path.to_owned(),
        })
    }
}

impl Group {
    /// Returns the group's path in the hierarchy.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the version of control groups: 1 or 2.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Reads the group's state. A value that cannot be read is `None`.
    #[must_use]
    pub fn read(&self) -> State {
        let text = |file| fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let stat = text("cpu.stat");
        match self.version {
            1 => State {
                weight: text("cpu.shares").trim().parse().ok(),
                throttled_ns: number_after(&stat, "throttled_time"),
            },
            _ => State {
                weight: text("cpu.weight").trim().parse().ok(),
                throttled_ns: number_after(&stat, "throttled_usec")
                    .map(|micros: u64| micros.saturating_mul(1000)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::text::changed;

    const HYBRID: &str = "\
24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
25 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
26 24 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 24 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
    const UNIFIED: &str =
        "25 1 0:23 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_1_is_found_where_it_has_the_cpu_controller() {
        let mounts = Mounts::parse(HYBRID);
        let text = "9:cpu,cpuacct:/lab/vm1\n4:memory:/m\n0::/\n";
        let group = mounts.group(text).unwrap();
        assert_eq!(group.version(), 1);
        assert_eq!(group.path(), "/lab/vm1");
        let folder = Path::new("/sys/fs/cgroup/cpu,cpuacct/lab/vm1");
        assert_eq!(group.folder, folder);
        assert_eq!(mounts.group("9:cpu:/\n"), None, "the root holds everybody");
        assert_eq!(mounts.group("9:cpu:/../other\n"), None);
    }

    #[test]
    fn version_2_is_found() {
        let mounts = Mounts::parse(UNIFIED);
        let group = mounts.group("0::/machine.slice/a:b.scope\n").unwrap();
        assert_eq!(group.version(), 2);
        let folder = Path::new("/sys/fs/cgroup/machine.slice/a:b.scope");
        assert_eq!(group.folder, folder);
    }

    #[test]
    fn both_versions_are_read_in_nanoseconds() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("cpu.shares", "512\n");
        write("cpu.weight", "50\n");
        let group = |version| Group {
            folder: folder.path().to_owned(),
            version,
            path: "/x".to_owned(),
        };
        write(
            "cpu.stat",
            "nr_periods 9\nnr_throttled 3\nthrottled_time 7000\n",
        );
        let state = State {
            weight: Some(512),
            throttled_ns: Some(7000),
        };
        assert_eq!(group(1).read(), state);
        write(
            "cpu.stat",
            "usage_usec 1\nnr_throttled 3\nthrottled_usec 7\n",
        );
        let state = State {
            weight: Some(50),
            ..state
        };
        assert_eq!(group(2).read(), state);
        fs::remove_file(folder.path().join("cpu.stat")).unwrap();
        assert_eq!(group(2).read().throttled_ns, None);
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let reached = Cell::new(0);
        let groups = "9:cpu,cpuacct:/lab/vm1\n4:memory:/m\n0::/lab/vm2\n";
        proptest!(|(mounts in changed(HYBRID), groups in changed(groups))| {
            if let Some(group) = Mounts::parse(&mounts).group(&groups) {
                reached.set(reached.get() + 1);
                prop_assert!(groups.contains(group.path()));
                let leads_up = group.folder.components().any(|part| part.as_os_str() == "..");
                prop_assert!(!leads_up || mounts.contains(".."), "{group:?}");
            }
        });
        assert!(reached.get() > 100, "{} groups were found", reached.get());
    }
}
