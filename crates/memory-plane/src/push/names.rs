//! File names: which are pushed, and how they appear in a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What stays as it is in a path (RFC 3986, 2.3).
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Whether a file of this name is not sent: who writes it will give it another one.
pub(super) fn is_set_aside(name: &[u8]) -> bool {
    name.starts_with(b".") || name.ends_with(b".tmp") || name.ends_with(b".part")
}

/// The path of a URL that these names make.
pub(super) fn path(names: &[Vec<u8>]) -> String {
    names.iter().fold(String::new(), |path, name| {
        format!("{path}/{}", percent_encode(name, &UNRESERVED))
    })
}
