//! Names of other programs, made safe for a terminal and for a command line.

/// Returns a text without the characters that control a terminal or change the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let safe = |letter: char| match letter {
        letter if letter.is_control() => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(safe).collect()
}

/// Returns a text as one word of a shell's command line, or `None` if it has characters that are not [`printable`].
pub(super) fn shell_word(text: &str) -> Option<String> {
    if text.is_empty() || printable(text) != text {
        return None;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/=:".contains(&byte);
    if text.bytes().all(plain) {
        return Some(text.to_owned());
    }
    shlex::try_quote(text).ok().map(|word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_text() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(printable("web-1 \u{1f600}"), "web-1 \u{1f600}");
        assert_eq!(printable("a\u{202e}b"), "a\u{fffd}b");
        assert_eq!(shell_word("web").as_deref(), Some("web"));
        let word = shell_word("$(reboot); x").unwrap();
        assert_eq!(shlex::split(&word).unwrap(), ["$(reboot); x"]);
        for refused in ["", "a\nreboot", "a\0b"] {
            assert_eq!(shell_word(refused), None, "{refused:?}");
        }
    }
}
