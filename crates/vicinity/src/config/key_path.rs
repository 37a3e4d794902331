//! Finds the key that a byte of the text belongs to.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the path of keys to the value at byte `at`, like `network.port.mac`.
pub(super) fn key_at(text: &str, at: usize) -> String {
    let mut path = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        descend(table.get_ref(), at, &mut path);
    }
    path.join(".")
}

/// Returns the tables of a value: the value itself, or its elements.
pub(super) fn tables<'a, 'i>(value: &'a DeValue<'i>) -> Vec<&'a DeTable<'i>> {
    match value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(array) => array
            .iter()
            .filter_map(|element| element.get_ref().as_table())
            .collect(),
        _ => Vec::new(),
    }
}

fn descend(table: &DeTable<'_>, at: usize, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let below = tables(value.get_ref());
        if below.iter().any(|table| descend(table, at, path)) {
            return true;
        }
        let elements = value.get_ref().as_array().into_iter().flatten();
        let mut spans = elements
            .map(Spanned::span)
            .chain([key.span(), value.span()]);
        if spans.any(|span| span.contains(&at)) {
            return true;
        }
        path.pop();
    }
    false
}
