//! Names of files: which are temporary, and how they appear in a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Characters that are not percent-encoded in a path (RFC 3986, 2.3).
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns whether this is a name of a temporary file, which its program will rename.
pub(super) fn is_temporary_name(name: &[u8]) -> bool {
    name.starts_with(b".") || name.ends_with(b".tmp") || name.ends_with(b".part")
}

/// Joins names to the path of a URL.
pub(super) fn url_path(names: &[Vec<u8>]) -> String {
    names.iter().fold(String::new(), |path, name| {
        format!("{path}/{}", percent_encode(name, &UNRESERVED))
    })
}
