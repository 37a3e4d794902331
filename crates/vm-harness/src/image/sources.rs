//! The host's own apt sources, reduced to its Debian release.
//!
//! The guest is built from the archive that this host already uses, whichever mirror that is. Sources
//! of other archives (of a browser, of a database) are left out: a guest needs none of their packages.

use std::fs;
use std::path::Path;

use crate::error::{Context, Error, Result};

/// Source entries of one release, in apt's two formats.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Entries in the one-line format, one a line.
    pub(crate) lines: String,
    /// Entries in the deb822 format, an empty line between them.
    pub(crate) stanzas: String,
}

impl Sources {
    /// Reads the entries of `/etc/apt` for the release `codename`.
    pub(crate) fn of_host(codename: &str) -> Result<Self> {
        Self::read(Path::new("/etc/apt"), codename)
    }

    fn read(apt: &Path, codename: &str) -> Result<Self> {
        let mut files = vec![apt.join("sources.list")];
        let parts = fs::read_dir(apt.join("sources.list.d"));
        files.extend(parts.into_iter().flatten().flatten().map(|e| e.path()));
        files.sort();
        let mut found = Self::default();
        for file in files.iter().filter(|file| file.is_file()) {
            let text = || fs::read_to_string(file).context(|| format!("read {}", file.display()));
            match file.extension().and_then(|e| e.to_str()) {
                Some("list") => found.add_lines(&text()?, codename),
                Some("sources") => found.add_stanzas(&text()?, codename),
                _ => {}
            }
        }
        if found == Self::default() {
            return Err(Error::Host(format!(
                "apt has no source for Debian {codename}: add one below {}",
                apt.display()
            )));
        }
        Ok(found)
    }

    fn add_lines(&mut self, text: &str, codename: &str) {
        for line in text.lines().map(str::trim) {
            let mut words = line.split_whitespace();
            if words.next() == Some("deb") && words.any(|word| is_suite(word, codename)) {
                self.lines.push_str(line);
                self.lines.push('\n');
            }
        }
    }

    fn add_stanzas(&mut self, text: &str, codename: &str) {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        for stanza in text.split("\n\n") {
            let field = |name: &str| {
                let mut lines = stanza.lines().filter_map(|line| line.split_once(':'));
                let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map_or("", |(_, value)| value)
            };
            let suits = field("Suites")
                .split_whitespace()
                .any(|s| is_suite(s, codename));
            let on = !field("Enabled").trim().eq_ignore_ascii_case("no");
            if suits && on && field("Types").split_whitespace().any(|t| t == "deb") {
                self.stanzas.push_str(stanza.trim());
                self.stanzas.push_str("\n\n");
            }
        }
    }
}

/// Whether a suite is the release itself, its updates or its security updates, and not its backports.
fn is_suite(word: &str, codename: &str) -> bool {
    let rest = word.strip_prefix(codename);
    rest.is_some_and(|rest| ["", "-updates", "-security", "/updates"].contains(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_release_is_taken() {
        let mut got = Sources::default();
        got.add_lines(
            "# deb a bookworm main\ndeb [signed-by=/k] a:b bookworm main\n\
             deb-src a bookworm main\ndeb a bookworm-backports main\ndeb z stable main\n",
            "bookworm",
        );
        assert_eq!(got.lines, "deb [signed-by=/k] a:b bookworm main\n");
        got.add_stanzas(
            "# why\nTypes: deb\nURIs: a:b\n# x\nSuites: bookworm bookworm-updates\n\n\
             Types: deb\nURIs: c\nSuites: bookworm-backports\n\n\
             Types: deb\nEnabled: no\nSuites: bookworm\n\nTypes: deb-src\nSuites: bookworm\n",
            "bookworm",
        );
        assert_eq!(
            got.stanzas,
            "Types: deb\nURIs: a:b\nSuites: bookworm bookworm-updates\n\n"
        );
    }

    #[test]
    fn a_host_without_sources_gets_an_error() {
        let error = Sources::read(Path::new("/nonexistent"), "bookworm").unwrap_err();
        assert!(error.to_string().contains("no source for Debian bookworm"));
    }
}
