//! HTML pages that need nothing from elsewhere.

/// The style of every page: it reads well in the light and in the dark.
pub const STYLE: &str = include_str!("style.css");

/// A page with a title, a style sheet and a body.
#[must_use]
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{style}</style></head><body><main>\
         {body}</main></body></html>\n"
    )
}

/// Text as it is written in HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
