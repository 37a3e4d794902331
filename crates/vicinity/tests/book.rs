//! The book in docs/: what it promises is there.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{root, vicinity};

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = paths
        .filter(|it| it.extension().is_some_and(|it| it == "md"))
        .collect();
    pages.sort();
    pages
}

#[test]
fn the_reference_is_what_the_code_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = vicinity();
    command.arg("reference").arg(folder.path());
    assert!(command.status().unwrap().success());
    let kept = root().join("docs/reference");
    for page in pages(folder.path()) {
        let name = page.file_name().unwrap();
        let made = fs::read_to_string(&page).unwrap();
        let kept = fs::read_to_string(kept.join(name)).unwrap_or_default();
        assert!(
            made == kept,
            "docs/reference/{} is out of date: `cargo run -p vicinity -- reference docs/reference`",
            name.to_string_lossy()
        );
    }
    assert_eq!(pages(&kept).len(), pages(folder.path()).len());
}

/// The links of a page: text, and where it leads.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// A heading as the anchor that readers of Markdown make of it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    let kept = letters.filter(|it| it.is_alphanumeric() || *it == ' ' || *it == '-' || *it == '_');
    kept.flat_map(char::to_lowercase)
        .map(|it| if it == ' ' { '-' } else { it })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let docs = root().join("docs");
    let mut all = pages(&docs);
    all.extend(pages(&docs.join("reference")));
    all.extend(pages(&docs.join("design")));
    all.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                _ => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !section.is_empty() && target.extension().is_some_and(|it| it == "md") {
                let text = fs::read_to_string(&target).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|heading| anchor(heading) == section),
                    "{}: {link}",
                    page.display()
                );
            }
        }
    }
}

/// Ours is the second column: each yes names tests, as links whose texts are their names, and each no
/// the reason.
#[test]
fn every_feature_has_a_test_that_proves_it_or_a_reason() {
    let page = root().join("docs/features.md");
    let text = fs::read_to_string(&page).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("|---"));
    let mut count = 0;
    for row in table.skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let ours = cells[2];
        count += 1;
        if let Some(why) = ours.strip_prefix("no: ") {
            assert!(why.len() > 10, "no reason: {row}");
            continue;
        }
        assert!(
            ours.starts_with("yes") || ours.starts_with("in part"),
            "{row}"
        );
        let mut tests = ours.split("[`").skip(1).peekable();
        assert!(tests.peek().is_some(), "no test: {row}");
        for link in tests {
            let (name, rest) = link.split_once("`](").unwrap();
            let file = page.parent().unwrap().join(rest.split_once(')').unwrap().0);
            let text = fs::read_to_string(file).unwrap_or_default();
            let at = text
                .find(&format!("fn {name}("))
                .unwrap_or_else(|| panic!("no test {name}: {row}"));
            let above = text[..at].trim_end();
            assert!(above.ends_with(']'), "{name} is not a test: {row}");
        }
    }
    assert!(count >= 25, "{count} rows");
}
