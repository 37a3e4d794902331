//! The settings of a port, which do not depend on the connected front-end.

use switch::guard::Rules;
use switch::mac::Mac;

use crate::config::{self, Owner};

/// The settings of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Settings {
    /// The pinned address.
    pub(super) mac: Option<Mac>,
    /// The rules for frames that the port sends and receives.
    pub(super) rules: Rules,
    /// The processes that may connect as the front-end.
    pub(super) owner: Owner,
}

impl Settings {
    /// Returns the settings of an unlisted port.
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
