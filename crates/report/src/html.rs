//! Makes HTML pages that need no other file and no network.

/// The style sheet of every page, for light and dark displays.
pub const STYLE: &str = include_str!("style.css");

/// Returns a page with a title, a style sheet and a body.
#[must_use]
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{style}</style></head><body><main>\
         {body}</main></body></html>\n"
    )
}

/// Escapes text for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
