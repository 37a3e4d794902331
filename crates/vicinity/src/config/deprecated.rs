//! Keys of the configuration that have a new name. The old name works for one release, with a warning.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::diagnostic::{ValueError, line_number};

/// The old and the new name of each renamed key.
const KEYS: [(&str, &str); 4] = [
    ("gather-us", "moderation-us"),
    ("give-up", "peer-timeout"),
    ("look-ups", "fdb-lookups"),
    ("push-trust", "push-ca-file"),
];

/// A deprecated key in the text of a configuration.
#[derive(Debug)]
pub(super) struct DeprecatedKey {
    at: Range<usize>,
    old: String,
    new: &'static str,
}

impl DeprecatedKey {
    /// Returns the key `old` of `table`, whose new name is `new`.
    ///
    /// # Errors
    /// The table has the key under both names.
    pub(super) fn new(
        table: &DeTable<'_>,
        old: &Spanned<Cow<'_, str>>,
        new: &'static str,
    ) -> Result<Self, ValueError> {
        if table.contains_key(new) {
            let message = format!("`{}` is the old name of `{new}`", old.get_ref());
            let help = format!("the table has both: remove `{}`", old.get_ref());
            return Err(ValueError::new(old.span(), message, help));
        }
        Ok(Self {
            at: old.span(),
            old: old.get_ref().to_string(),
            new,
        })
    }

    /// Returns the warning for the text `text` from `origin`.
    pub(super) fn warning(&self, origin: &str, text: &str) -> String {
        let line = line_number(text, self.at.start);
        format!("{origin}:{line}: {}", warning(&self.old, self.new))
    }
}

/// Returns the new name of a renamed key.
pub(crate) fn current(old: &str) -> Option<&'static str> {
    KEYS.iter().find(|(it, _)| *it == old).map(|(_, new)| *new)
}

/// Returns the other name of a key that has two.
pub(super) fn other_name(key: &str) -> Option<&'static str> {
    let names = KEYS.iter().find(|(old, new)| key == *old || key == *new)?;
    Some(if key == names.0 { names.1 } else { names.0 })
}

/// Returns the warning that `old` is deprecated.
pub(crate) fn warning(old: &str, new: &str) -> String {
    format!("`{old}` is deprecated, and the next release refuses it; write `{new}` instead")
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::super::parse::parse;

    const OLD: &str = "\
[[network]]
name = \"lan\"
accept = true
gather-us = 7
look-ups = 3
[message]
uplink = { interface = \"eth1\", give-up = 9 }
[[message.member]]
name = \"web\"
[[space]]
vm = \"db\"
push = \"https://store/\"
push-trust = \"/etc/ca.pem\"
";

    #[test]
    fn an_old_key_works_and_its_warning_names_the_new_one() {
        let config = parse("test.toml", OLD, None).unwrap();
        let lan = &config.networks[0];
        assert_eq!((lan.moderation_us, lan.fdb_lookups), (7, Some(3)));
        assert_eq!(config.message_uplink.unwrap().peer_timeout.as_secs(), 9);
        let push = config.spaces[0].push.as_ref().unwrap();
        assert_eq!(push.trust, Some("/etc/ca.pem".into()));
        let (_, deprecated) = file::read(OLD).unwrap();
        let warnings: Vec<String> = deprecated
            .iter()
            .map(|key| key.warning("test.toml", OLD))
            .collect();
        for (old, new) in super::KEYS {
            let line = OLD.lines().position(|line| line.contains(old)).unwrap() + 1;
            let begin = format!("test.toml:{line}: `{old}` is deprecated");
            let found = warnings.iter().find(|warning| warning.starts_with(&begin));
            let warning = found.unwrap_or_else(|| panic!("{old}: {warnings:?}"));
            assert!(warning.contains(&format!("write `{new}`")), "{warning}");
        }
        assert_eq!(warnings.len(), super::KEYS.len());
    }

    #[test]
    fn a_new_key_has_no_warning() {
        let mut text = OLD.to_owned();
        for (old, new) in super::KEYS {
            text = text.replace(old, new);
        }
        let (_, deprecated) = file::read(&text).unwrap();
        assert!(deprecated.is_empty(), "{deprecated:?}");
        assert_eq!(
            parse("test.toml", &text, None).unwrap(),
            parse("test.toml", OLD, None).unwrap()
        );
    }

    #[test]
    fn both_names_of_a_key_are_refused() {
        let both = OLD.replace("look-ups = 3", "look-ups = 3\nfdb-lookups = 3");
        let error = parse("test.toml", &both, None).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:5:1: "), "{error}");
        assert!(error.contains("remove `look-ups`"), "{error}");
    }

    #[test]
    fn an_old_key_is_known_only_where_its_new_name_is() {
        let text = OLD.replace("accept = true", "accept = true\ngive-up = 3");
        let error = parse("test.toml", &text, None).unwrap_err().to_string();
        assert!(error.contains("unknown key `give-up`"), "{error}");
    }
}
