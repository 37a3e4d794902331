//! Names of VMs and networks.
//!
//! A name appears in paths, QEMU ids, URLs, log lines and tables. In folder mode it is the name of
//! a file that another program created. The narrow alphabet of names is safe in all of these
//! places.

use switch::control::MAX_NAME;

/// Why a text cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// More than [`MAX_NAME`] bytes.
    #[error("a name has at most {MAX_NAME} bytes")]
    Long,
    /// A character outside of the alphabet, or a first character that is not alphanumeric.
    #[error(
        "a name is made of letters, digits, '.', '_' and '-', and starts with a letter or digit"
    )]
    Alphabet,
}

/// Checks that `text` can name a VM or a network.
pub(crate) fn check(text: &str) -> Result<(), NameError> {
    if text.len() > MAX_NAME {
        return Err(NameError::Long);
    }
    let first = text.bytes().next().ok_or(NameError::Empty)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if first.is_ascii_alphanumeric() && text.bytes().all(allowed) {
        Ok(())
    } else {
        Err(NameError::Alphabet)
    }
}

/// Returns the candidate nearest to `text`, if it is near enough that `text` may be a typo of it.
pub(crate) fn nearest<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(text, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 3).max(1))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Returns the end of an error message about a name that no candidate has: a question with the
/// nearest candidate, if there is one.
pub(crate) fn hint<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, candidates).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(check("web-1.example_b"), Ok(()));
        assert_eq!(check(&"a".repeat(MAX_NAME)), Ok(()));
        assert_eq!(check(""), Err(NameError::Empty));
        assert_eq!(check(&"a".repeat(MAX_NAME + 1)), Err(NameError::Long));
        for bad in ["a/b", "../x", ".hidden", "-x", "a b", "a\nb", "ä"] {
            assert_eq!(check(bad), Err(NameError::Alphabet), "{bad:?}");
        }
    }

    #[test]
    fn typos_find_their_key_and_unrelated_words_do_not() {
        let keys = ["vm", "mac", "socket", "mode"];
        assert_eq!(nearest("sokcet", keys), Some("socket"));
        assert_eq!(nearest("macc", keys), Some("mac"));
        assert_eq!(nearest("zzz", keys), None);
    }
}
