//! Checks of single values that occur in several tables.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::path::PathBuf;

use switch::mac::Mac;
use toml::Spanned;

use super::diagnostic::{ValueError, line_number};
use crate::name;

/// Longest name of a network interface, in bytes (`IFNAMSIZ` without its closing zero).
const MAX_INTERFACE: usize = 15;

/// Checks the name of a network interface. `kind` names the interface in the error message.
pub(super) fn interface<'t>(
    text: &'t Spanned<String>,
    kind: &str,
) -> Result<&'t String, ValueError> {
    let name = text.get_ref();
    let fits = (1..=MAX_INTERFACE).contains(&name.len());
    if fits && name::check(name).is_ok() {
        return Ok(name);
    }
    let help =
        format!("an interface name has 1 to {MAX_INTERFACE} letters, digits, '.', '_' or '-'");
    let message = format!("`{}` cannot name {kind}", name.escape_debug());
    Err(ValueError::new(text.span(), message, help))
}

/// Returns the number of a Unix group, given by name or number.
pub(super) fn unix_group(written: &Spanned<String>) -> Result<u32, ValueError> {
    let help = "write a group of this host, or its number; `groupadd --system NAME` adds one";
    let refused = |message| ValueError::new(written.span(), message, help);
    crate::unix_group::number(written.get_ref()).map_err(refused)
}

pub(super) fn check_name(name: &Spanned<String>) -> Result<(), ValueError> {
    name::check(name.get_ref()).map_err(|error| {
        let message = format!("`{}` cannot be a name", name.get_ref().escape_debug());
        ValueError::new(name.span(), message, error.to_string())
    })
}

pub(super) fn absolute(path: &Spanned<PathBuf>) -> Result<PathBuf, ValueError> {
    if path.get_ref().is_absolute() {
        return Ok(path.get_ref().clone());
    }
    let message = format!("the path {} is not absolute", path.get_ref().display());
    Err(ValueError::new(
        path.span(),
        message,
        "write a path that starts with a slash",
    ))
}

pub(super) fn individual(text: &Spanned<String>) -> Result<Mac, ValueError> {
    let mac: Mac = text
        .get_ref()
        .parse()
        .map_err(|error: switch::mac::MacError| {
            let message = format!("`{}` is not a MAC address", text.get_ref().escape_debug());
            ValueError::new(text.span(), message, error.to_string())
        })?;
    if mac.is_group() || mac.bits() == 0 {
        let message = format!("{mac} cannot be a VM's address");
        let help = "a multicast, broadcast or zero address does not identify a VM; the first octet must be even, \
            as in 52:54:00:00:00:01";
        return Err(ValueError::new(text.span(), message, help));
    }
    Ok(mac)
}

/// Values that may occur only once, with the place at which each occurred.
pub(super) struct Unique<'t, T> {
    text: &'t str,
    what: &'static str,
    places: HashMap<T, Range<usize>>,
}

impl<'t, T: Eq + Hash + Clone + std::fmt::Debug> Unique<'t, T> {
    pub(super) fn new(text: &'t str, what: &'static str) -> Self {
        Self {
            text,
            what,
            places: HashMap::new(),
        }
    }

    pub(super) fn take(&mut self, value: T, place: Range<usize>) -> Result<(), ValueError> {
        let shown = format!("{value:?}");
        let Some(first) = self.places.insert(value, place.clone()) else {
            return Ok(());
        };
        let line = line_number(self.text, first.start);
        let message = format!("{} {shown} is given twice", self.what);
        let help = format!(
            "line {line} has it already; each {} must be different",
            self.what
        );
        Err(ValueError::new(place, message, help))
    }
}
