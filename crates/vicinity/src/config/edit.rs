//! A change to the text of a configuration that leaves its comments and order as they were.
//!
//! This module checks only that the place of a change exists. The ordinary check of a configuration
//! decides whether the result is valid.

use serde_json::{Map, Value as Json};
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value,
};

use super::deprecated;
use crate::name;

/// Keys and values as in the file; null removes a key.
pub(crate) type Keys = Map<String, Json>;

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

/// Why a change cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// No network, port or space has that name.
    #[error("there is no {what} {name}{hint}")]
    Missing {
        /// The kind: a network, a port or a space.
        what: &'static str,
        /// The requested name.
        name: String,
        /// The end of the message: a similar name, if there is one.
        hint: String,
    },
    /// The name is already in use.
    #[error("a {what} {name} already exists; change it with `vicinity {what} set`")]
    Exists {
        /// The kind: a network, a port or a space.
        what: &'static str,
        /// The requested name.
        name: String,
    },
    /// The file has a form that this program cannot edit.
    #[error(
        "the configuration does not list its networks, ports and spaces as [[network]], [[network.port]] and \
            [[space]]; edit the file, then run `vicinity reload`"
    )]
    Form,
    /// A value that TOML cannot represent: null in a list.
    #[error("a list cannot contain null; remove the null")]
    Null,
    /// The text is not valid TOML.
    #[error("{0}")]
    Toml(#[from] TomlError),
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

/// A kind of table, with the key that identifies each table of that kind.
struct Kind {
    what: &'static str,
    list: &'static str,
    key: &'static str,
}

const NETWORK: Kind = Kind {
    what: "network",
    list: "network",
    key: "name",
};

const PORT: Kind = Kind {
    what: "port",
    list: "port",
    key: "vm",
};

const SPACE: Kind = Kind {
    what: "space",
    list: "space",
    key: "vm",
};

impl Kind {
    fn names<'a>(&self, tables: &'a ArrayOfTables) -> impl Iterator<Item = &'a str> {
        let key = self.key;
        tables
            .iter()
            .map(move |table| table.get(key).and_then(Item::as_str).unwrap_or_default())
    }

    fn place(&self, tables: &ArrayOfTables, name: &str) -> Result<usize, EditError> {
        let place = self.names(tables).position(|known| known == name);
        place.ok_or_else(|| EditError::Missing {
            what: self.what,
            name: name.to_owned(),
            hint: name::hint(name, self.names(tables)),
        })
    }

    fn find<'a>(
        &self,
        tables: &'a mut ArrayOfTables,
        name: &str,
    ) -> Result<&'a mut Table, EditError> {
        let place = self.place(tables, name)?;
        tables.get_mut(place).ok_or(EditError::Form)
    }

    fn remove(&self, tables: &mut ArrayOfTables, name: &str) -> Result<(), EditError> {
        let place = self.place(tables, name)?;
        tables.remove(place);
        Ok(())
    }

    fn add(&self, tables: &mut ArrayOfTables, keys: &Keys) -> Result<(), EditError> {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        if let Some(name) = keys.get(self.key).and_then(Json::as_str) {
            if self.names(tables).any(|known| known == name) {
                return Err(EditError::Exists {
                    what: self.what,
                    name: name.to_owned(),
                });
            }
            // The name comes first, because readers look for it first.
            drop(table.insert(self.key, Item::Value(Value::from(name))));
        }
        merge(&mut table, keys)?;
        tables.push(table);
        Ok(())
    }
}

fn ports<'a>(
    networks: &'a mut ArrayOfTables,
    network: &str,
) -> Result<&'a mut ArrayOfTables, EditError> {
    list(NETWORK.find(networks, network)?, PORT.list)
}

fn list<'a>(table: &'a mut Table, key: &str) -> Result<&'a mut ArrayOfTables, EditError> {
    table
        .entry(key)
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .ok_or(EditError::Form)
}

/// Sets the keys in `table`. If both the old and the new value are tables, merges them. Removes a key that the table
/// has under its other name.
fn merge(table: &mut dyn TableLike, keys: &Keys) -> Result<(), EditError> {
    for (key, new) in keys {
        if let Some(other) = deprecated::other_name(key) {
            drop(table.remove(other));
        }
        match new {
            Json::Null => drop(table.remove(key)),
            Json::Object(below) => {
                let old = table.get_mut(key).and_then(Item::as_table_like_mut);
                match old {
                    Some(old) => merge(old, below)?,
                    None => drop(table.insert(key, Item::Value(value(new)?))),
                }
            }
            _ => replace(table, key, value(new)?),
        }
    }
    Ok(())
}

/// Sets one value and keeps the comment behind it.
fn replace(table: &mut dyn TableLike, key: &str, mut new: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(table.insert(key, Item::Value(new))),
    }
}

fn value(json: &Json) -> Result<Value, EditError> {
    Ok(match json {
        Json::Null => return Err(EditError::Null),
        Json::Bool(it) => Value::from(*it),
        Json::Number(it) => match it.as_i64() {
            Some(whole) => Value::from(whole),
            None => Value::from(it.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(it) => Value::from(it.as_str()),
        Json::Array(it) => Value::Array(it.iter().map(value).collect::<Result<Array, _>>()?),
        Json::Object(it) => {
            let mut table = InlineTable::new();
            merge(&mut table, it)?;
            Value::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
