//! A change to the text of a configuration that leaves its comments and order as they were.
//!
//! This module checks only that the place of a change exists. The ordinary check of a configuration
//! decides whether the result is valid.

mod error;
mod tables;

use toml_edit::{ArrayOfTables, DocumentMut};

pub(crate) use error::EditError;
pub(crate) use tables::Keys;
use tables::{NETWORK, PORT, SPACE, list, merge, ports};

/// A change to a configuration.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Adds a network.
    AddNetwork(Keys),
    /// Sets keys of a network.
    SetNetwork {
        /// The network.
        network: String,
        /// The keys to set.
        keys: Keys,
    },
    /// Removes a network with its ports.
    RemoveNetwork {
        /// The network.
        network: String,
    },
    /// Adds a port.
    AddPort {
        /// The network of the port.
        network: String,
        /// The keys of the new port.
        keys: Keys,
    },
    /// Sets keys of a port.
    SetPort {
        /// The network of the port.
        network: String,
        /// The VM of the port.
        vm: String,
        /// The keys to set.
        keys: Keys,
    },
    /// Removes a port.
    RemovePort {
        /// The network of the port.
        network: String,
        /// The VM of the port.
        vm: String,
    },
    /// Adds a space.
    AddSpace(Keys),
    /// Sets keys of a VM's space.
    SetSpace {
        /// The VM of the space.
        vm: String,
        /// The keys to set.
        keys: Keys,
    },
    /// Removes a VM's space with all its contents.
    RemoveSpace {
        /// The VM of the space.
        vm: String,
    },
}

impl Edit {
    /// Returns `text` with this change.
    pub(crate) fn apply(&self, text: &str) -> Result<String, EditError> {
        let mut document: DocumentMut = text.parse()?;
        let table = document.as_table_mut();
        match self {
            Self::AddSpace(keys) => SPACE.add(list(table, SPACE.list)?, keys)?,
            Self::SetSpace { vm, keys } => {
                merge(SPACE.find(list(table, SPACE.list)?, vm)?, keys)?;
            }
            Self::RemoveSpace { vm } => SPACE.remove(list(table, SPACE.list)?, vm)?,
            _ => self.apply_to(list(table, NETWORK.list)?)?,
        }
        Ok(document.to_string())
    }

    /// Applies a change of networks or ports to the list of networks.
    fn apply_to(&self, networks: &mut ArrayOfTables) -> Result<(), EditError> {
        match self {
            Self::AddNetwork(keys) => NETWORK.add(networks, keys)?,
            Self::SetNetwork { network, keys } => merge(NETWORK.find(networks, network)?, keys)?,
            Self::RemoveNetwork { network } => NETWORK.remove(networks, network)?,
            Self::AddPort { network, keys } => PORT.add(ports(networks, network)?, keys)?,
            Self::SetPort { network, vm, keys } => {
                merge(PORT.find(ports(networks, network)?, vm)?, keys)?;
            }
            Self::RemovePort { network, vm } => PORT.remove(ports(networks, network)?, vm)?,
            Self::AddSpace(_) | Self::SetSpace { .. } | Self::RemoveSpace { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const TEXT: &str = "\
# The networks.
[[network]]
name = \"blue\" # the first
limits = { broadcast = 5 }

[[network.port]]
vm = \"a\" # its comment
vlan = 10 # ten

[[network]]
name = \"green\"
accept = true
";

    fn keys(json: &Json) -> Keys {
        json.as_object().unwrap().clone()
    }

    fn of(network: &str) -> String {
        network.to_owned()
    }

    #[test]
    fn a_port_comes_and_goes_and_nothing_else_changes() {
        let edit = Edit::AddPort {
            network: of("blue"),
            keys: keys(&json!({"vm": "b", "limits": {"send": {"rate": "1 Gbit/s"}}})),
        };
        let with = edit.apply(TEXT).unwrap();
        let new = "\n[[network.port]]\nvm = \"b\"\nlimits = { send = { rate = \"1 Gbit/s\" } }\n";
        let (before, after) = with.split_once(new).expect(&with);
        assert_eq!(format!("{before}{after}"), TEXT);
        assert!(before.ends_with("vlan = 10 # ten\n"));
        let vm = of("b");
        let edit = Edit::RemovePort {
            network: of("blue"),
            vm,
        };
        assert_eq!(edit.apply(&with).unwrap(), TEXT);
    }

    #[test]
    fn a_key_is_set_added_and_taken_away_beside_its_comments() {
        let set = |json: &Json| {
            let edit = Edit::SetPort {
                network: of("blue"),
                vm: of("a"),
                keys: keys(json),
            };
            edit.apply(TEXT).unwrap()
        };
        let with = set(&json!({"vlan": 20}));
        assert_eq!(with, TEXT.replace("vlan = 10 # ten", "vlan = 20 # ten"));
        let with = set(&json!({"vlan": null, "trunk": [1, "2-3"]}));
        let gone = TEXT.replace("vlan = 10 # ten", "trunk = [1, \"2-3\"]");
        assert_eq!(with, gone);
        let edit = Edit::SetNetwork {
            network: of("blue"),
            keys: keys(&json!({"limits": {"multicast": 6}})),
        };
        let merged = TEXT.replace("{ broadcast = 5 }", "{ broadcast = 5 , multicast = 6 }");
        let squeeze = |text: String| text.replace(" ,", ",");
        assert_eq!(squeeze(edit.apply(TEXT).unwrap()), squeeze(merged));
    }

    #[test]
    fn a_key_replaces_itself_under_its_other_name() {
        let old = TEXT.replace("accept = true", "look-ups = 2\naccept = true");
        let set = |json: &Json| {
            let edit = Edit::SetNetwork {
                network: of("green"),
                keys: keys(json),
            };
            edit.apply(&old).unwrap()
        };
        assert_eq!(
            set(&json!({"fdb-lookups": 3})),
            TEXT.replace("accept = true", "accept = true\nfdb-lookups = 3")
        );
        assert_eq!(set(&json!({"fdb-lookups": null})), TEXT);
    }

    #[test]
    fn a_network_comes_and_goes_with_its_ports() {
        let edit = Edit::AddNetwork(keys(&json!({"name": "red", "port": []})));
        assert!(edit.apply(TEXT).unwrap().starts_with(TEXT));
        let network = of("blue");
        let gone = Edit::RemoveNetwork { network }.apply(TEXT).unwrap();
        assert!(!gone.contains("blue") && !gone.contains("port"), "{gone}");
    }

    #[test]
    fn a_space_comes_changes_and_goes() {
        let add = Edit::AddSpace(keys(&json!({"vm": "a", "slots": 16})));
        let with = add.apply(TEXT).unwrap();
        assert_eq!(with, format!("{TEXT}\n[[space]]\nvm = \"a\"\nslots = 16\n"));
        assert!(matches!(
            add.apply(&with),
            Err(EditError::Exists { what: "space", .. })
        ));
        let vm = of("a");
        let keys = keys(&json!({"slots": 32}));
        let set = Edit::SetSpace { vm, keys }.apply(&with).unwrap();
        assert_eq!(set, with.replace("16", "32"));
        let vm = of("a");
        assert_eq!(Edit::RemoveSpace { vm }.apply(&set).unwrap(), TEXT);
        let vm = of("b");
        let error = Edit::RemoveSpace { vm }.apply(&set).unwrap_err();
        assert!(error.to_string().contains("no space b"));
    }

    #[test]
    fn what_is_not_there_or_there_already_is_named() {
        let vm = of("b");
        let network = of("gren");
        let error = Edit::RemovePort { network, vm }.apply(TEXT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no network gren; did you mean green?"
        );
        let error = Edit::AddNetwork(keys(&json!({"name": "blue"})));
        assert!(matches!(
            error.apply(TEXT),
            Err(EditError::Exists {
                what: "network",
                ..
            })
        ));
        let edit = Edit::AddPort {
            network: of("blue"),
            keys: keys(&json!({"vm": "z", "trunk": [null]})),
        };
        assert_eq!(edit.apply(TEXT), Err(EditError::Null));
        let network = of("x");
        let inline = "network = [{ name = \"x\" }]\n";
        let edit = Edit::RemoveNetwork { network };
        assert_eq!(edit.apply(inline), Err(EditError::Form));
    }
}
