//! CPU weights by cgroup, version 1 (`cpu.shares`) and 2 (`cpu.weight`).
//!
//! Weights act among siblings only, so every thread set gets a group below one parent of ours.
//! In version 2 the parent is threaded, so that threads of one process may be in several groups.

use std::fs;
use std::path::{Path, PathBuf};

use super::journal::{Journal, Undo, put};
use crate::error::{Context, Error, Result};
use crate::scope;
use crate::study::probe::writable;

/// A hierarchy with the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    root: PathBuf,
    unified: bool,
}

/// Groups that were made, with the threads in them.
#[derive(Debug)]
pub struct Groups {
    parent: PathBuf,
    weights: Weights,
}

impl Weights {
    /// The hierarchy of this host.
    ///
    /// # Errors
    /// There is none, or it cannot be written.
    pub fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .context(|| "read /proc/self/mounts".to_owned())?;
        let controllers =
            |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let found = Self::among(&mounts, controllers);
        let found = found
            .ok_or_else(|| Error::Host("no cgroup hierarchy has the cpu controller".to_owned()))?;
        if writable(&found.root) {
            return Ok(found);
        }
        Err(Error::Host(format!(
            "{} cannot be written",
            found.root.display()
        )))
    }

    fn among(mounts: &str, controllers: impl Fn(&Path) -> String) -> Option<Self> {
        let hierarchy = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, root, kind, options, ..] = fields.as_slice() else {
                return None;
            };
            let root = PathBuf::from(root);
            match *kind {
                "cgroup" if options.split(',').any(|option| option == "cpu") => Some(Self {
                    root,
                    unified: false,
                }),
                "cgroup2"
                    if controllers(&root)
                        .split_whitespace()
                        .any(|name| name == "cpu") =>
                {
                    Some(Self {
                        root,
                        unified: true,
                    })
                }
                _ => None,
            }
        };
        mounts.lines().find_map(hierarchy)
    }

    /// Version of the hierarchy.
    #[must_use]
    pub const fn version(&self) -> &'static str {
        if self.unified { "v2" } else { "v1" }
    }

    /// What is written for a share: 1 is the default of every group.
    fn value(&self, share: f64) -> (&'static str, String) {
        let (file, default) = if self.unified {
            ("cpu.weight", 100.0)
        } else {
            ("cpu.shares", 1024.0)
        };
        (file, format!("{:.0}", share * default))
    }
}

impl Groups {
    /// Put each set of threads into a group with its share. Undone with the journal.
    ///
    /// # Errors
    /// The kernel refuses a group, a share or a thread.
    pub fn make(
        journal: &mut Journal,
        weights: &Weights,
        sets: &[(&str, f64, &[i32])],
    ) -> Result<Self> {
        let parent = weights.root.join(scope::unique());
        if weights.unified {
            allow_children(journal, &weights.root)?;
        }
        add_group(journal, &parent)?;
        let groups = Self {
            parent,
            weights: weights.clone(),
        };
        if weights.unified {
            // "domain threaded" comes by itself once a child is threaded.
            put(&groups.parent.join("cgroup.subtree_control"), "+cpu")
                .or_else(|_| groups.thread_parent())?;
        }
        for (name, share, threads) in sets {
            groups.add(journal, name, *share, threads)?;
        }
        Ok(groups)
    }

    fn thread_parent(&self) -> Result<()> {
        put(&self.parent.join("cgroup.type"), "threaded")?;
        put(&self.parent.join("cgroup.subtree_control"), "+cpu")
    }

    fn add(&self, journal: &mut Journal, name: &str, share: f64, threads: &[i32]) -> Result<()> {
        let path = self.parent.join(name);
        add_group(journal, &path)?;
        if self.weights.unified {
            put(&path.join("cgroup.type"), "threaded")?;
        }
        let (file, value) = self.weights.value(share);
        journal.write(&path.join(file), &value)?;
        let list = path.join(if self.weights.unified {
            "cgroup.threads"
        } else {
            "tasks"
        });
        for thread in threads {
            put(&list, &thread.to_string())?;
        }
        Ok(())
    }
}

/// Let the root's children have the cpu controller, if they do not yet.
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

/// Move a group's threads up and remove it.
pub(super) fn remove(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    for list in ["cgroup.threads", "tasks"] {
        let threads = fs::read_to_string(path.join(list)).unwrap_or_default();
        for thread in threads.lines() {
            // A thread that ended meanwhile, or that may not go up (v2 forbids it at the edge
            // of a threaded subtree), is dealt with by the removal below.
            let _gone = put(&parent.join(list), thread);
        }
    }
    fs::remove_dir(path).context(|| format!("remove the cgroup {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn the_hierarchy_with_the_cpu_controller_is_found() {
        let v1 = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Weights::among(v1, |_| "hugetlb".into()).unwrap();
        assert_eq!(
            (found.root.to_str().unwrap(), found.version()),
            ("/sys/fs/cgroup/cpu", "v1")
        );
        assert_eq!(found.value(0.5), ("cpu.shares", "512".into()));
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let found = Weights::among(v2, |_| "cpuset cpu io".into()).unwrap();
        assert_eq!(
            (found.version(), found.value(2.0)),
            ("v2", ("cpu.weight", "200".into()))
        );
        assert_eq!(Weights::among(v2, |_| "io".into()), None);
    }

    #[test]
    fn groups_hold_the_threads_and_go_again() {
        let Ok(weights) = Weights::find() else {
            return; // no cpu controller here: `vicinity lab list` says so
        };
        let mut sleep = host::command("sleep");
        sleep.arg("60");
        let child = host::Tied::spawn(sleep).unwrap();
        let thread = i32::try_from(child.id()).unwrap();
        let mut journal = Journal::begin().unwrap();
        let sets: [(&str, f64, &[i32]); 2] = [("backend", 0.5, &[thread]), ("vm1", 2.0, &[])];
        let groups = Groups::make(&mut journal, &weights, &sets).unwrap();
        let (file, value) = weights.value(2.0);
        assert_eq!(
            fs::read_to_string(groups.parent.join("vm1").join(file))
                .unwrap()
                .trim(),
            value
        );
        let of = fs::read_to_string(format!("/proc/{thread}/cgroup")).unwrap();
        assert!(of.contains("/backend\n"), "{of}");
        drop(journal);
        assert!(!groups.parent.exists());
    }
}
