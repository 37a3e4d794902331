//! Sets CPU weights and caps by cgroup, version 1 (`cpu.shares`, `cpu.cfs_quota_us`) and 2
//! (`cpu.weight`, `cpu.max`).
//!
//! The kernel compares weights among sibling groups only, so every thread set gets a group below one common parent.
//! In version 2 the sets' groups are threaded, so that threads of one process may be in several groups;
//! such a group accepts only threads of processes that are in its parent (cgroups v2, "Threads").

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::journal::Journal;
use super::undo::{Undo, put};
use vm_harness::error::{Context, Error, Result};
use vm_harness::{host, scope};

/// A hierarchy of control groups that has the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
    version: Version,
}

/// Version of the control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `cpu.shares`, `cpu.cfs_quota_us`.
    One,
    /// `cpu.weight`, `cpu.max`.
    Two,
}

/// A set of threads, with its CPU weight and cap.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its weight relative to the other sets; 1 is the default.
    pub share: f64,
    /// Maximum number of CPUs that it may use.
    pub cap: Option<f64>,
    /// Its threads.
    pub threads: &'a [u32],
}

/// The groups that were made, with their threads.
#[derive(Debug)]
pub struct Groups {
    parent: PathBuf,
    hierarchy: Hierarchy,
}

/// Period of a cap in microseconds: the kernel's default.
const PERIOD: f64 = 100_000.0;

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    /// Returns `v1` or `v2`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "v1",
            Self::Two => "v2",
        }
    }
}

impl Hierarchy {
    /// Returns the hierarchy of this host. At most one version has the cpu controller.
    ///
    /// # Errors
    /// No hierarchy has the cpu controller, or the hierarchy cannot be written.
    pub fn find() -> Result<Self> {
        let usable = Version::ALL
            .into_iter()
            .find_map(|version| Self::of(version).ok());
        usable.map_or_else(|| Self::of(Version::Two), Ok)
    }

    /// Returns the hierarchy of a version.
    ///
    /// # Errors
    /// The hierarchy cannot be used; the error gives the reason.
    pub fn of(version: Version) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .context(|| "read /proc/self/mounts".to_owned())?;
        let controllers =
            |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let found = Self::among(&mounts, version, controllers).ok_or_else(|| {
            let name = version.name();
            Error::Host(format!("no cgroup {name} hierarchy has the cpu controller"))
        })?;
        if writable(&found.root) {
            return Ok(found);
        }
        Err(Error::Host(format!(
            "{} cannot be written",
            found.root.display()
        )))
    }

    fn among(
        mounts: &str,
        version: Version,
        controllers: impl Fn(&Path) -> String,
    ) -> Option<Self> {
        let hierarchy = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, root, kind, options, ..] = fields.as_slice() else {
                return None;
            };
            let root = PathBuf::from(root);
            let has_cpu = match (version, *kind) {
                (Version::One, "cgroup") => options.split(',').any(|option| option == "cpu"),
                (Version::Two, "cgroup2") => {
                    let names = controllers(&root);
                    names.split_whitespace().any(|name| name == "cpu")
                }
                _ => false,
            };
            has_cpu.then_some(Self { root, version })
        };
        mounts.lines().find_map(hierarchy)
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the file and value for a share: 1 is the default of every group.
    fn share(&self, share: f64) -> (&'static str, String) {
        match self.version {
            Version::One => ("cpu.shares", format!("{:.0}", share * 1024.0)),
            Version::Two => ("cpu.weight", format!("{:.0}", share * 100.0)),
        }
    }

    /// Returns the file and value for a cap in CPUs.
    fn cap(&self, cap: f64) -> (&'static str, String) {
        let quota = cap * PERIOD;
        match self.version {
            Version::One => ("cpu.cfs_quota_us", format!("{quota:.0}")),
            Version::Two => ("cpu.max", format!("{quota:.0} {PERIOD:.0}")),
        }
    }
}

impl Groups {
    /// Puts each set of threads into a group of its own. The journal undoes this.
    ///
    /// # Errors
    /// The kernel refuses a group, a share, a cap or a thread.
    pub fn create(
        journal: &mut Journal,
        hierarchy: &Hierarchy,
        sets: &[Group<'_>],
    ) -> Result<Self> {
        let parent = hierarchy.root.join(scope::unique());
        let two = hierarchy.version == Version::Two;
        if two {
            allow_children(journal, &hierarchy.root)?;
        }
        add_group(journal, &parent)?;
        let groups = Self {
            parent,
            hierarchy: hierarchy.clone(),
        };
        if two {
            // The kernel makes the parent "domain threaded" once a child is threaded.
            put(&groups.parent.join("cgroup.subtree_control"), "+cpu")
                .or_else(|_| groups.thread_parent())?;
        }
        for set in sets {
            groups.add(journal, set)?;
        }
        Ok(groups)
    }

    fn thread_parent(&self) -> Result<()> {
        put(&self.parent.join("cgroup.type"), "threaded")?;
        put(&self.parent.join("cgroup.subtree_control"), "+cpu")
    }

    fn add(&self, journal: &mut Journal, set: &Group<'_>) -> Result<()> {
        let path = self.parent.join(set.name);
        add_group(journal, &path)?;
        let list = match self.hierarchy.version {
            Version::One => path.join("tasks"),
            Version::Two => {
                put(&path.join("cgroup.type"), "threaded")?;
                path.join("cgroup.threads")
            }
        };
        let (file, value) = self.hierarchy.share(set.share);
        journal.write(&path.join(file), &value)?;
        if self.hierarchy.version == Version::Two {
            // The parent accepts processes once it has a threaded child.
            for process in processes(set.threads) {
                self.move_to_parent(journal, process)?;
            }
        }
        if let Some(cap) = set.cap {
            let (file, value) = self.hierarchy.cap(cap);
            journal.write(&path.join(file), &value)?;
        }
        for thread in set.threads {
            put(&list, &thread.to_string())?;
        }
        Ok(())
    }
}

impl Groups {
    /// Moves a process into the parent. The journal undoes this before it removes the groups.
    fn move_to_parent(&self, journal: &mut Journal, process: u32) -> Result<()> {
        let path = format!("/proc/{process}/cgroup");
        let text = fs::read_to_string(&path).context(|| format!("read {path}"))?;
        let now = text.lines().find_map(|line| line.strip_prefix("0::/"));
        let now = self.hierarchy.root.join(now.unwrap_or_default());
        if now.starts_with(&self.parent) {
            return Ok(());
        }
        journal.note(Undo::Return {
            process,
            started: host::start_time(process).unwrap_or_default(),
            group: now,
        })?;
        put(&self.parent.join("cgroup.procs"), &process.to_string())
    }
}

/// Returns the processes that threads belong to.
fn processes(threads: &[u32]) -> BTreeSet<u32> {
    let of = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        line.trim().parse().ok()
    };
    threads.iter().filter_map(of).collect()
}

/// Enables the cpu controller for the root's children, if needed.
fn allow_children(journal: &mut Journal, root: &Path) -> Result<()> {
    let path = root.join("cgroup.subtree_control");
    let now = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
    if now.split_whitespace().any(|name| name == "cpu") {
        return Ok(());
    }
    journal.note(Undo::Write {
        path: path.clone(),
        value: "-cpu".to_owned(),
    })?;
    put(&path, "+cpu")
}

fn add_group(journal: &mut Journal, path: &Path) -> Result<()> {
    journal.note(Undo::RemoveGroup {
        path: path.to_owned(),
    })?;
    fs::create_dir(path).context(|| format!("make the cgroup {}", path.display()))
}

/// Whether this process may write to a path.
fn writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_the_cpu_controller_is_found() {
        let v1 = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Hierarchy::among(v1, Version::One, |_| "hugetlb".into()).unwrap();
        assert_eq!(found.root.to_str().unwrap(), "/sys/fs/cgroup/cpu");
        assert_eq!(found.share(0.5), ("cpu.shares", "512".into()));
        assert_eq!(found.cap(0.25), ("cpu.cfs_quota_us", "25000".into()));
        let none = Hierarchy::among(v1, Version::Two, |_| "hugetlb".into());
        assert_eq!(none, None);
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let found = Hierarchy::among(v2, Version::Two, |_| "cpuset cpu io".into()).unwrap();
        assert_eq!(found.share(2.0), ("cpu.weight", "200".into()));
        assert_eq!(found.cap(1.5), ("cpu.max", "150000 100000".into()));
        assert_eq!(Hierarchy::among(v2, Version::One, |_| "cpu".into()), None);
    }

    #[test]
    fn groups_hold_the_threads_and_go_again() {
        let Ok(hierarchy) = Hierarchy::find() else {
            return; // this host has no cpu controller; `vicinity lab list` reports that
        };
        let mut sleep = host::command("sleep");
        sleep.arg("60");
        let child = host::ChildProcess::spawn(sleep).unwrap();
        let threads = [child.id()];
        let groups_of_child =
            || fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        let before = groups_of_child();
        let mut journal = Journal::begin().unwrap();
        let group = |name, share, cap| Group {
            name,
            share,
            cap,
            threads: &[],
        };
        let backend = Group {
            threads: &threads,
            ..group("backend", 0.5, None)
        };
        let sets = [backend, group("vm1", 2.0, Some(0.5))];
        let groups = Groups::create(&mut journal, &hierarchy, &sets).unwrap();
        for (file, value) in [hierarchy.share(2.0), hierarchy.cap(0.5)] {
            let kept = fs::read_to_string(groups.parent.join("vm1").join(file)).unwrap();
            assert_eq!(kept.trim(), value);
        }
        let of = groups_of_child();
        assert!(of.contains("/backend\n"), "{of}");
        drop(journal);
        assert!(!groups.parent.exists());
        assert_eq!(groups_of_child(), before);
    }

    #[test]
    fn a_share_that_the_kernel_refuses_leaves_nothing_behind() {
        let Ok(hierarchy) = Hierarchy::find() else {
            return;
        };
        let mut journal = Journal::begin().unwrap();
        let sets = [Group {
            name: "refused",
            // The weight is below the minimum of either version, so the kernel rounds the value up or refuses it.
            share: 0.0,
            cap: None,
            threads: &[],
        }];
        let error = Groups::create(&mut journal, &hierarchy, &sets).unwrap_err();
        assert!(error.to_string().contains("cpu."), "{error}");
        drop(journal);
        let left = fs::read_dir(&hierarchy.root).unwrap().flatten();
        let ours = format!("vicinity-lab-{}-", std::process::id());
        let left: Vec<_> = left
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours))
            .filter(|entry| entry.path().join("refused").exists())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
