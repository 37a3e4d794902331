//! Removes from a report what identifies the host or its users: names of the host and of users, folders of users,
//! MAC addresses, and IP addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use serde_json::Value;

/// Characters that end a path in a text.
const PATH_ENDS: [char; 12] = [
    ' ', '\t', '\n', '\'', '"', '`', ',', ';', ')', '(', '<', '>',
];

/// Folders that contain the folders of users.
const HOME_PARENTS: [&str; 4] = ["/home/", "/root/", "/var/home/", "/Users/"];

/// User names that every host has, and that identify no one.
const COMMON: [&str; 4] = ["root", "nobody", "daemon", "admin"];

/// The user ids of people, on Debian, Fedora and others; 65534 is `nobody`.
const HUMAN_UIDS: std::ops::Range<u32> = 1000..60000;

/// What to remove.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// Words, each with what replaces it.
    words: Vec<(String, &'static str)>,
    /// Beginnings of paths.
    folders: Vec<String>,
}

impl Redactor {
    /// Returns what identifies this host. Paths below `folders` are removed, too.
    #[must_use]
    pub fn of_host(folders: &[&Path]) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let variable = |name| std::env::var(name).unwrap_or_default();
        let users = ["USER", "LOGNAME", "SUDO_USER"].map(variable);
        let current = std::env::current_dir().unwrap_or_default();
        let mut all: Vec<String> = folders
            .iter()
            .copied()
            .chain([current.as_path()])
            .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
            .chain(folders.iter().map(|path| (*path).to_owned()))
            .map(|path| path.display().to_string())
            .collect();
        all.push(variable("HOME"));
        let mut redactor = Self::new(
            &[&read("/proc/sys/kernel/hostname"), &read("/etc/hostname")],
            &read("/etc/passwd"),
            &users.each_ref().map(String::as_str),
        );
        redactor.folders.extend(
            all.into_iter()
                .filter(|path| path.len() > 4 && path.starts_with('/')),
        );
        redactor
    }

    /// Returns what identifies a host with these names, this `/etc/passwd` and these further users.
    #[must_use]
    pub fn new(hosts: &[&str], passwd: &str, users: &[&str]) -> Self {
        let mut words = BTreeSet::new();
        for host in hosts {
            let host = host.trim();
            words.insert((host.to_owned(), "[host]"));
            words.insert((host.split('.').next().unwrap_or(host).to_owned(), "[host]"));
        }
        let mut folders = Vec::new();
        for line in passwd.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, _, _, home, ..] = fields.as_slice() else {
                continue;
            };
            if id.parse().is_ok_and(|id: u32| HUMAN_UIDS.contains(&id)) {
                words.insert(((*name).to_owned(), "[user]"));
                folders.push((*home).to_owned());
            }
        }
        for user in users.iter().filter(|user| !COMMON.contains(user)) {
            words.insert(((*user).to_owned(), "[user]"));
        }
        let mut words: Vec<_> = words
            .into_iter()
            .filter(|(word, _)| !word.is_empty())
            .collect();
        // A longer word may contain a shorter one.
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        folders.retain(|folder: &String| folder.len() > 4);
        Self { words, folders }
    }

    /// Returns the text without what identifies the host.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let without_paths = self.without_paths(text);
        let without_addresses = without_addresses(&without_paths);
        self.words
            .iter()
            .fold(without_addresses, |text, (word, by)| {
                replace_word(&text, word, by)
            })
    }

    /// Removes it from every text of a value, also from the names of fields' values below.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.value(one)),
            Value::Object(fields) => fields.values_mut().for_each(|one| self.value(one)),
            _ => {}
        }
    }

    /// Replaces each path below a folder of a user, or below one of the folders, to its end.
    fn without_paths(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        let starts = || {
            HOME_PARENTS
                .into_iter()
                .chain(self.folders.iter().map(String::as_str))
        };
        while let Some(at) = starts().filter_map(|start| rest.find(start)).min() {
            let (before, path) = rest.split_at(at);
            out.push_str(before);
            out.push_str("[path]");
            let end = path.find(PATH_ENDS).unwrap_or(path.len());
            let whole = path.get(..end).unwrap_or_default();
            // A path may end a sentence, or stand before a reason.
            let length = whole.trim_end_matches([':', '.']).len();
            rest = path.get(length..).unwrap_or_default();
        }
        out.push_str(rest);
        out
    }
}

/// Whether a character may be part of a name.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// Replaces a word where no part of a name is next to it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, from) = rest.split_at(at);
        let after = from.get(word.len()..).unwrap_or_default();
        let inside = before
            .chars()
            .next_back()
            .or(out.chars().next_back())
            .is_some_and(is_name)
            || after.chars().next().is_some_and(is_name);
        out.push_str(before);
        out.push_str(if inside { word } else { by });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Replaces MAC addresses, IPv4 addresses and IPv6 addresses.
fn without_addresses(text: &str) -> String {
    let part = |c: char| c.is_ascii_hexdigit() || ".:-".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(part) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c| !part(c)).unwrap_or(from.len());
        let (token, after) = from.split_at(end);
        let joined = before.chars().next_back().or(out.chars().next_back());
        // Letters next to the token make it a part of a name: `cafe::beef_`.
        let inside = joined.is_some_and(|c| c.is_alphanumeric() || c == '_')
            || after
                .chars()
                .next()
                .is_some_and(|c| c.is_alphanumeric() || c == '_');
        out.push_str(before);
        match inside {
            true => out.push_str(token),
            false => out.push_str(&redacted(token)),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns a token with its addresses replaced. A token may end a sentence, or have a port behind a colon.
fn redacted(token: &str) -> String {
    let core = token.trim_end_matches(['.', ':', '-']);
    let core = core.trim_start_matches(['.', '-']);
    let kind = kind_of(core).or_else(|| {
        let (address, port) = core.rsplit_once(':')?;
        let _number: u16 = port.parse().ok()?;
        kind_of(address)
    });
    match kind {
        Some(kind) => token.replace(core, kind),
        None => token.to_owned(),
    }
}

fn kind_of(text: &str) -> Option<&'static str> {
    let is_mac = |separator| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == 6 && parts.iter().all(|part| part.len() == 2)
    };
    if is_mac(':') || is_mac('-') {
        return Some("[mac]");
    }
    // Without a digit it is rather a path of Rust: `a::b`.
    if !text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match text.parse::<IpAddr>().ok()? {
        // The unspecified address and that of the host itself identify no host.
        IpAddr::V6(Ipv6Addr::LOCALHOST | Ipv6Addr::UNSPECIFIED) => None,
        IpAddr::V4(address) if address.is_loopback() || address.is_unspecified() => None,
        _ => Some("[ip]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
                          nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n\
                          ada:x:1000:1000:Ada:/srv/people/ada:/bin/bash\n";

    fn redactor() -> Redactor {
        Redactor::new(&["hv7.example.org\n"], PASSWD, &["grace", "root"])
    }

    #[test]
    fn what_identifies_the_host_is_removed() {
        for (planted, wanted) in [
            ("on hv7.example.org, hv7: full", "on [host], [host]: full"),
            ("ada and grace", "[user] and [user]"),
            ("open /home/ada/x/y.toml: no", "open [path]: no"),
            ("open '/srv/people/ada/key'", "open '[path]'"),
            ("/root/vm.img", "[path]"),
            ("at aa:bb:cc:dd:ee:0f,", "at [mac],"),
            ("at AA-BB-CC-DD-EE-0F.", "at [mac]."),
            ("from 192.0.2.7 to 192.0.2.8:80.", "from [ip] to [ip]."),
            ("2001:db8::17 and fe80::1%eth0/64", "[ip] and [ip]%eth0/64"),
            ("[2001:db8:0:1:2:3:4:5]:80", "[[ip]]:80"),
        ] {
            assert_eq!(redactor().text(planted), wanted, "{planted}");
        }
    }

    #[test]
    fn what_identifies_no_host_stays() {
        for text in [
            "QEMU 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)",
            "Linux 6.1.0-56-cloud-amd64, 0000:00:02.0, 12:34:56",
            "adapter, nevada, hv77, readable, std::fs::read, a::b",
            "2026-11-25T01:26:05Z at 127.0.0.1:80, root, [mem 0x1000-0x2000]",
            "uncached-minus, write-back, q35-ovmf-1g",
        ] {
            assert_eq!(redactor().text(text), text);
        }
    }

    #[test]
    fn the_host_of_this_test_is_not_in_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let redactor = Redactor::of_host(&[folder.path()]);
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let planted = format!("{} {}/x", name.trim(), folder.path().display());
        assert_eq!(redactor.text(&planted), "[host] [path]");
        let mut value = serde_json::json!({"a": [planted], "n": 1});
        redactor.value(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["[host] [path]"], "n": 1}));
    }
}
