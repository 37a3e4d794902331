//! The page on troubleshooting: it is to have what the program says.

/// Bytes of a quotation at least: less would fit too much.
const SHORTEST: usize = 8;

/// Some text in italics there fits what was said; `…` stands for anything.
pub(crate) fn assert_quoted(said: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
    let page = std::fs::read_to_string(path).unwrap();
    let page = page.replace("**", "");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let quotes = page.split('*').skip(1).step_by(2);
    let fits = |quote: &str| quote.split('…').all(|part| said.contains(part.trim()));
    assert!(
        quotes.filter(|quote| quote.len() >= SHORTEST).any(fits),
        "docs/troubleshooting.md does not quote {said}"
    );
}
