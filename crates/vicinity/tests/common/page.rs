//! Checks that the page on troubleshooting contains the program's messages.

/// Least bytes of a quotation: a shorter one would match too many messages.
const SHORTEST: usize = 8;

/// Asserts that a text in italics on that page matches the message `said`; `…` stands for any text.
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
