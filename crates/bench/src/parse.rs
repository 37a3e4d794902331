//! Parses the output of tools, which print numbers after names.

/// Returns the number that follows the first `name` in `text`.
pub(super) fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_after_a_name_is_read_whatever_follows() {
        let text = "  idle cycles: 15711069947 (70.87%)\nsize: 64B\nlast: 7";
        assert_eq!(number_after(text, "idle cycles:"), Some(15_711_069_947));
        assert_eq!(number_after(text, "size:"), Some(64));
        assert_eq!(number_after(text, "last:"), Some(7));
    }

    #[test]
    fn a_name_without_a_number_gives_nothing() {
        assert_eq!(number_after("pmd usage: NOT AVAIL", "pmd usage:"), None);
        assert_eq!(number_after("", "pmd usage:"), None);
    }
}
