//! The modules of a crate form a tree that one can draw: no circle of files may name each other.
//!
//! A module is a file (a module in braces belongs to its file). An edge goes from file A to file B
//! when A names an item that B defines: in a `use`, in a path of an expression, type or pattern,
//! in the arguments of a macro or of an attribute, those in strings too
//! (`serde(default = "limits::retries")`).
//!
//! - An item that is named through a re-export counts where it is defined. So a child that names
//!   `super::Thing` while its parent says `pub use sibling::Thing` has an edge to the sibling: a
//!   re-export hides no edge, and a parent that only declares and re-exports is in no circle.
//! - A re-export (a `use` with a visibility) is no edge by itself, nor is `mod x;`. A private `use`
//!   is one, used or not.
//! - Naming a module (`use super::limits;`) is no edge; naming an item through it
//!   (`limits::RETRIES`) is. `use super::limits::*` is an edge to the file of `limits`.
//! - Code that is compiled only for tests or only for loom does not count.
//! - Methods are found through their type, so the file of an `impl` block that the type's file does
//!   not name gets no edge from those that call its methods.
//!
//! `syn` parses the files. It does not expand macros: an item that a macro makes belongs to the
//! file of the module in which it is named, and a single name in a macro's arguments is taken for
//! an item even if it is a variable. (A circle that is reported by such a mistake is mended by
//! another name for the variable.)

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod circles;
mod compiled;
mod edges;
#[cfg(test)]
mod invented;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};

use circles::{circles, describe};
use edges::edges;
use modules::{Crate, Sources};

/// Packages that still have circles. The list is to be emptied; no package is added to it.
const EXEMPT: [&str; 5] = [
    "crates/memory-plane",
    "crates/mxoe",
    "crates/myriexpress",
    "crates/space",
    "crates/vicinity",
];

/// Reads every Rust file below a folder, by its path from `root`.
fn read(root: &Path, folder: &Path, sources: &mut Sources) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                read(root, &path, sources);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            sources.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
}

/// Returns the packages of the workspace, and the one of the fuzz targets, by their path from `root`.
fn packages(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("fuzz")];
    for parent in ["crates", "guest"] {
        let entries = fs::read_dir(root.join(parent)).unwrap().flatten();
        folders.extend(entries.map(|entry| entry.path()));
    }
    folders.retain(|folder| folder.join("Cargo.toml").exists());
    folders.sort();
    let relative = |folder: PathBuf| folder.strip_prefix(root).unwrap().to_owned();
    folders.into_iter().map(relative).collect()
}

/// Returns the files in which a crate of this package starts: its library, programs, fuzz targets.
fn roots(sources: &Sources, package: &Path) -> Vec<PathBuf> {
    let starts = |file: &&PathBuf| {
        let Ok(file) = file.strip_prefix(package) else {
            return false;
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        let named = |name: &str| file.file_name().is_some_and(|found| found == name);
        match folder.to_str() {
            Some("src") => named("lib.rs") || named("main.rs"),
            Some("src/bin" | "fuzz_targets") => true,
            _ => folder.parent() == Some(Path::new("src/bin")) && named("main.rs"),
        }
    };
    sources.keys().filter(starts).cloned().collect()
}

#[test]
fn no_crate_has_a_circle_of_modules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Sources::new();
    for folder in ["crates", "guest", "fuzz"] {
        read(&root, &root.join(folder), &mut sources);
    }
    let mut report = String::new();
    let (mut crates, mut found) = (0, 0);
    for package in packages(&root) {
        let mut package_edges = Vec::new();
        for start in roots(&sources, &package) {
            crates += 1;
            package_edges.extend(edges(&Crate::load(&sources, &start)));
        }
        found += package_edges.len();
        if !EXEMPT.iter().any(|exempt| package == Path::new(exempt)) {
            report += &describe(&circles(&package_edges));
        }
    }
    assert!(
        crates > 20 && found > 1000,
        "the sources were not found: {crates} crates with {found} uses"
    );
    assert!(report.is_empty(), "{report}");
}
