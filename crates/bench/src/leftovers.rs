//! Finds what a run could not remove.

use std::fs;
use std::path::Path;

use vm_harness::error::Result;
use vm_harness::hugepages;

/// Lists what is left of a run: processes whose command line contains `folder`, the folder itself, and
/// hugepages if their number is not `pages`.
pub(super) fn find(folder: &Path, pages: u64) -> Result<Vec<String>> {
    let mut left = Vec::new();
    if folder.exists() {
        left.push(format!("folder {}", folder.display()));
    }
    let now = hugepages::total()?;
    if now != pages {
        left.push(format!("{now} hugepages of 2 MB instead of {pages}"));
    }
    left.extend(processes(folder).map(|id| format!("process {id}")));
    Ok(left)
}

fn processes(folder: &Path) -> impl Iterator<Item = String> {
    let folder = folder.to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(move |entry| {
        // The command line of a process that ended after the folder was listed cannot be read.
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let found = String::from_utf8_lossy(&line).contains(&folder);
        found.then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_started_in_the_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo; read line # {}", folder.path().display());
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The child's command line names the folder only after `exec`.
        let mut line = [0];
        child.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let found: Vec<String> = processes(folder.path()).collect();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, [child.id().to_string()]);
    }
}
