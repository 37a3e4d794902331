//! docs/unsafe.md lists every file with `unsafe` code and the number of unsafe places in it. A change that
//! adds one must explain it there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FORMS: [&str; 4] = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];

/// Returns the number of unsafe places in a file's text, without comments.
fn places(text: &str) -> usize {
    let code = text.lines().map(str::trim);
    let code = code.filter(|line| !line.starts_with("//"));
    code.map(|line| {
        FORMS
            .iter()
            .map(|form| line.matches(form).count())
            .sum::<usize>()
    })
    .sum()
}

/// Adds every Rust file below a folder, by its path from `root`, and its number of places.
fn count(root: &Path, folder: &Path, found: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            count(root, &path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let places = places(&fs::read_to_string(&path).unwrap_or_default());
            let name = path.strip_prefix(root).unwrap_or(&path);
            if places > 0 {
                found.insert(name.to_string_lossy().into_owned(), places);
            }
        }
    }
}

/// Returns the rows of the table: "| `file` | places |…".
fn listed(text: &str) -> BTreeMap<String, usize> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let file = cells.next()?.trim().trim_end_matches('`').to_owned();
        Some((file, cells.next()?.trim().parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn every_unsafe_place_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates")).unwrap().flatten() {
        count(&root, &entry.path().join("src"), &mut found);
    }
    let list = listed(&fs::read_to_string(root.join("docs/unsafe.md")).unwrap());
    assert!(found.len() > 5, "the sources were not found: {found:?}");
    assert_eq!(found, list, "the sources (left) and docs/unsafe.md (right)");
}

#[test]
fn comments_are_not_counted() {
    let text = "// unsafe { }\nunsafe impl Send for X {}\nlet a = unsafe { b() } + unsafe { c() };";
    assert_eq!(places(text), 3);
}
