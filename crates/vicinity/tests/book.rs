//! Tests of the documents: the reference, links, paths, figures and the chart match the code and the results.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "book/chart.rs"]
mod chart;
mod common;
#[path = "book/mpi.rs"]
mod mpi;
#[path = "book/mpi_rate.rs"]
mod mpi_rate;
#[path = "book/results.rs"]
mod results;

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

/// Returns the targets of the links of a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Returns the anchor that Markdown renderers make of a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    let kept = letters.filter(|it| it.is_alphanumeric() || *it == ' ' || *it == '-' || *it == '_');
    kept.flat_map(char::to_lowercase)
        .map(|it| if it == ' ' { '-' } else { it })
        .collect()
}

/// Returns all documents except the changelog, which names things that no longer exist.
fn documents() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut all = pages(&docs);
    all.extend(pages(&docs.join("reference")));
    all.extend(pages(&docs.join("design")));
    all.extend(pages(&docs.join("results")));
    all.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    all
}

#[test]
fn every_link_leads_somewhere() {
    let all = documents();
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

/// Returns the texts between single backticks, except in code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let blocks = text.split("```").step_by(2);
    let texts = blocks.flat_map(|block| block.split('`').skip(1).step_by(2));
    texts.collect()
}

/// Returns whether a quoted text is the path of a file or folder of this repository. Paths with
/// `*`, `…` or braces stand for several files, and the build creates `target`, so neither counts.
fn is_path(text: &str) -> bool {
    let starts = [
        "crates/",
        "docs/",
        "guest/",
        "scripts/",
        "packaging/",
        "fuzz/",
    ];
    let letters = |it: char| it.is_ascii_alphanumeric() || "/._-".contains(it);
    starts.iter().any(|start| text.starts_with(start)) && text.chars().all(letters)
}

#[test]
fn every_path_that_a_document_names_exists() {
    // A path in QEMU's source tree.
    let foreign = "docs/interop/vhost-user.rst";
    let mut missing = Vec::new();
    let mut count = 0;
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        let paths = quoted(&text).into_iter();
        for path in paths.filter(|path| is_path(path) && *path != foreign) {
            count += 1;
            if !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(count > 100, "{count} paths");
}

/// With `VICINITY_WRITE_CHART=1` in the environment, the test writes the file instead.
#[test]
fn the_chart_is_what_the_results_give() {
    let file = root().join("docs/charts/data-path.svg");
    let made = chart::data_path();
    if std::env::var_os("VICINITY_WRITE_CHART").is_some() {
        fs::write(&file, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&file).unwrap_or_default() == made,
        "docs/charts/data-path.svg is out of date: \
         `VICINITY_WRITE_CHART=1 cargo test -p vicinity --test book chart`"
    );
}

/// `scripts/commit-result` writes such files. A time in them would change their bytes with each call.
#[test]
fn every_committed_result_is_compressed_without_a_time() {
    let entries = fs::read_dir(root().join("docs/results")).unwrap();
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let mut count = 0;
    for path in paths.iter().filter(|it| !it.ends_with("README.md")) {
        assert!(path.is_file(), "{}: not a file", path.display());
        let bytes = fs::read(path).unwrap();
        // RFC 1952, 2.3.1: magic, deflate, no name of a file, no time.
        assert!(
            bytes.starts_with(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]),
            "{}: use scripts/commit-result",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 20, "{count} results");
}

#[test]
fn every_figure_of_a_committed_result_is_as_measured() {
    let checks = [
        ("docs/performance.md", results::of_the_data_path()),
        ("docs/performance-space.md", results::of_the_spaces()),
        ("docs/performance.md", results::of_two_vms()),
        ("docs/performance-messages.md", results::of_the_messages()),
        ("docs/performance-mpi.md", mpi::rows()),
        ("docs/performance-mpi.md", mpi_rate::rows()),
        ("README.md", results::of_the_readme()),
    ];
    for (page, texts) in checks {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // A row may have further columns.
        let rows = texts.iter().map(|said| said.trim_end_matches(" |"));
        let missing: Vec<_> = rows.filter(|said| !text.contains(said)).collect();
        assert!(
            missing.is_empty(),
            "{page} does not have:\n{}",
            missing.join("\n")
        );
    }
}

/// Vicinity's column is the second: each yes names tests, as links whose texts are the tests' names, and each
/// no names the reason.
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
