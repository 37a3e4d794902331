//! Parses the kernel's small text files.

use std::str::FromStr;

/// Returns the first word after `key` in the first line that begins with `key`.
pub(crate) fn number_after<T: FromStr>(text: &str, key: &str) -> Option<T> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the value of a `key=value` word.
pub(crate) fn value_of<T: FromStr>(line: &str, key: &str) -> Option<T> {
    let words = line.split_whitespace();
    words
        .filter_map(|word| word.split_once('='))
        .find(|(name, _)| *name == key)?
        .1
        .parse()
        .ok()
}

/// Returns variants of the text with up to three changes. Each change removes, doubles or replaces a
/// piece. Most variants keep the form of the text, so that a property test reaches the code that parses
/// the contents.
#[cfg(test)]
pub(crate) fn changed(text: &'static str) -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    use proptest::sample::Index;

    let change = (any::<Index>(), 0_usize..8, 0_usize..3, ".{0,3}");
    prop::collection::vec(change, 0..=3).prop_map(move |changes| {
        let mut letters: Vec<char> = text.chars().collect();
        for (at, length, kind, other) in changes {
            let start = at.index(letters.len() + 1);
            let end = (start + length).min(letters.len());
            let piece: Vec<char> = match kind {
                0 => Vec::new(),
                1 => [&letters[start..end], &letters[start..end]].concat(),
                _ => other.chars().collect(),
            };
            letters.splice(start..end, piece);
        }
        letters.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_at_the_start_of_a_line_only() {
        let text = "nonvoluntary: 3\nvoluntary: 7 kB\n";
        assert_eq!(number_after(text, "voluntary:"), Some(7));
        assert_eq!(number_after::<u64>(text, "absent:"), None);
    }

    #[test]
    fn words_have_values() {
        let line = "some avg10=0.19 avg60=12.47 total=449934643";
        assert_eq!(value_of(line, "avg10"), Some(0.19));
        assert_eq!(value_of(line, "total"), Some(449_934_643_u64));
        assert_eq!(value_of::<u64>(line, "avg300"), None);
    }
}
