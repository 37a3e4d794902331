//! Lists the sources of the guests' kernel modules, so that the harness contains them and can build the modules on any
//! host.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    list("direct")?;
    list("wake")
}

/// Writes the list of the sources in a folder of `guest`.
fn list(module: &str) -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let folder = here.join("../../guest").join(module).canonicalize()?;
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.retain(|name| is_source(name));
    names.sort();
    let mut list = "&[\n".to_owned();
    for name in names {
        let path = folder.join(&name);
        // Writing to a string never fails.
        let _ = writeln!(list, "({name:?}, include_str!({path:?})),");
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join(format!("{module}_sources.rs")), list)
}

fn is_source(name: &str) -> bool {
    let path = Path::new(name);
    let kind = path.extension().and_then(|kind| kind.to_str());
    matches!(kind, Some("c" | "h")) && !name.ends_with(".mod.c")
        || matches!(name, "Kbuild" | "Makefile")
}
