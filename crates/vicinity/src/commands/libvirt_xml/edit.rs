//! Changes of a domain's text, which leave everything else in it as it is.

use std::ops::Range;

use roxmltree::Node;

/// A range of the text, and its replacement.
pub(super) type Change = (Range<usize>, String);

/// Where a domain gets something.
pub(super) enum Addition {
    /// In an element that it has.
    Inside(Change),
    /// An element at its end.
    AtEnd(String),
}

/// Returns the first child with this name.
pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// Returns the change that appends a child to an element.
pub(super) fn append(element: Node<'_, '_>, text: &str, child: &str) -> Change {
    let depth = element.ancestors().filter(Node::is_element).count();
    let child = indented(child, 2 * depth);
    let outer = indented("", 2 * (depth - 1)) + &" ".repeat(2 * (depth - 1));
    let range = element.range();
    let whole = text.get(range.clone()).unwrap_or_default();
    // With its prefix, which the name of the node does not have.
    let name = whole.trim_start_matches('<');
    let name = name.split(|letter: char| letter.is_whitespace() || "/>".contains(letter));
    let name = name.into_iter().next().unwrap_or_default();
    match whole.rfind("</") {
        Some(close) => {
            // The closing tag keeps its own indentation.
            let before = whole.get(..close).unwrap_or_default().trim_end().len();
            let from = range.start + before;
            (from..range.start + close, format!("\n{child}{outer}"))
        }
        // <devices/>
        None => (
            range.end - 2..range.end,
            format!(">\n{child}{outer}</{name}>"),
        ),
    }
}

/// Returns a text with each line indented by this many spaces.
pub(super) fn indented(text: &str, by: usize) -> String {
    let space = " ".repeat(by);
    text.lines()
        .map(|line| format!("{space}{line}\n"))
        .collect()
}
