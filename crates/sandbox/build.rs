//! Collects the notes `// syscalls: …` from the crates that make up a data plane.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where the data plane's code is, seen from this crate.
const CODE: [&str; 4] = [
    "src",
    "../switch/src",
    "../vhost/src",
    "../vicinity/src/data_plane.rs",
];

const MARK: &str = "// syscalls: ";

fn main() -> io::Result<()> {
    let mut names = BTreeSet::new();
    for code in CODE {
        println!("cargo::rerun-if-changed={code}");
        collect(Path::new(code), &mut names)?;
    }
    let mut table = "/// Allowed system calls: name and number.\n\
                     const NOTED: &[(&str, i64)] = &[\n"
        .to_owned();
    for name in names {
        table += &format!("    (\"{name}\", libc::SYS_{name}),\n");
    }
    table += "];\n";
    let folder = env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    fs::write(folder.join("noted.rs"), table)
}

fn collect(path: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), names)?;
        }
        return Ok(());
    }
    for line in fs::read_to_string(path)?.lines() {
        if let Some(note) = line.trim_start().strip_prefix(MARK) {
            names.extend(note.split_whitespace().map(str::to_owned));
        }
    }
    Ok(())
}
