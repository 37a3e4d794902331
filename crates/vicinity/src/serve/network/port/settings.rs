//! What holds for a port, whichever front-end is connected.

use switch::guard::Rules;
use switch::mac::Mac;

use crate::config::{self, Owner};

/// What holds for a port, whichever front-end is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Settings {
    /// The pinned address.
    pub(super) mac: Option<Mac>,
    /// What it may send and receive.
    pub(super) rules: Rules,
    /// Whose front-end it is for.
    pub(super) owner: Owner,
}

impl Settings {
    /// Those of a port that is not listed.
    pub(in crate::serve) fn of_rules(rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            ..Self::default()
        }
    }
}

impl From<&config::Port> for Settings {
    fn from(port: &config::Port) -> Self {
        Self {
            mac: port.mac,
            rules: port.rules.clone(),
            owner: port.owner.clone(),
        }
    }
}
