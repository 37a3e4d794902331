//! Circles of files, and the report on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::edges::Edge;

const ADVICE: &str = "Modules of a crate form a tree. Move what both files need into a module below both, \
     move an `impl` block to the file of its type, or pass the value down instead of \
     reaching up for it. A parent module should only declare and re-export.\n";

/// Returns the edges that are part of a circle: those of each group of files that all reach each
/// other.
pub(crate) fn circles(edges: &[Edge]) -> Vec<Vec<Edge>> {
    let mut next: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = next
        .keys()
        .map(|from| (*from, reach(&next, from)))
        .collect();
    let reaches =
        |from: &Path, to: &Path| reached.get(from).is_some_and(|files| files.contains(to));
    // Each group is named by its first file.
    let mut groups: BTreeMap<&Path, Vec<Edge>> = BTreeMap::new();
    for edge in edges {
        if reaches(&edge.to, &edge.from) {
            let both_ways = |file: &&&Path| reaches(&edge.from, file) && reaches(file, &edge.from);
            let first = reached.keys().find(both_ways).copied();
            groups
                .entry(first.unwrap_or(&edge.from))
                .or_default()
                .push(edge.clone());
        }
    }
    groups.into_values().collect()
}

fn reach<'a>(next: &BTreeMap<&'a Path, BTreeSet<&'a Path>>, from: &Path) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Path> = vec![from];
    while let Some(file) = open.pop() {
        for to in next.get(file).into_iter().flatten() {
            if found.insert(*to) {
                open.push(to);
            }
        }
    }
    found
}

/// Writes each circle with its files, the lines of the uses, and what to do.
pub(crate) fn describe(circles: &[Vec<Edge>]) -> String {
    let mut text = String::new();
    for circle in circles {
        let files: BTreeSet<&Path> = circle.iter().map(|edge| edge.from.as_path()).collect();
        let _ = writeln!(
            text,
            "\nThese {} files name each other in a circle:",
            files.len()
        );
        for file in files {
            let _ = writeln!(text, "  {}", file.display());
            for edge in circle.iter().filter(|edge| edge.from == file) {
                let Edge { line, name, to, .. } = edge;
                let _ = writeln!(text, "    line {line}: {name}, of {}", to.display());
            }
        }
    }
    if !circles.is_empty() {
        text += ADVICE;
    }
    text
}
