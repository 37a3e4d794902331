//! The tables of a configuration's text: finding, adding, changing and removing them.

use serde_json::{Map, Value as Json};
use toml_edit::{Array, ArrayOfTables, InlineTable, Item, Table, TableLike, Value};

use super::error::EditError;
use crate::config::deprecated;
use crate::name;

/// Keys and values as in the file; null removes a key.
pub(crate) type Keys = Map<String, Json>;

/// A kind of table, with the key that identifies each table of that kind.
pub(super) struct Kind {
    what: &'static str,
    pub(super) list: &'static str,
    key: &'static str,
}

pub(super) const NETWORK: Kind = Kind {
    what: "network",
    list: "network",
    key: "name",
};

pub(super) const PORT: Kind = Kind {
    what: "port",
    list: "port",
    key: "vm",
};

pub(super) const SPACE: Kind = Kind {
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

    fn position(&self, tables: &ArrayOfTables, name: &str) -> Result<usize, EditError> {
        let position = self.names(tables).position(|known| known == name);
        position.ok_or_else(|| EditError::Missing {
            what: self.what,
            name: name.to_owned(),
            hint: name::hint(name, self.names(tables)),
        })
    }

    pub(super) fn find<'a>(
        &self,
        tables: &'a mut ArrayOfTables,
        name: &str,
    ) -> Result<&'a mut Table, EditError> {
        let position = self.position(tables, name)?;
        tables.get_mut(position).ok_or(EditError::Form)
    }

    pub(super) fn remove(&self, tables: &mut ArrayOfTables, name: &str) -> Result<(), EditError> {
        let position = self.position(tables, name)?;
        tables.remove(position);
        Ok(())
    }

    pub(super) fn add(&self, tables: &mut ArrayOfTables, keys: &Keys) -> Result<(), EditError> {
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

/// Returns the list of a network's ports.
pub(super) fn ports<'a>(
    networks: &'a mut ArrayOfTables,
    network: &str,
) -> Result<&'a mut ArrayOfTables, EditError> {
    list(NETWORK.find(networks, network)?, PORT.list)
}

/// Returns the list of tables with this key.
pub(super) fn list<'a>(
    table: &'a mut Table,
    key: &str,
) -> Result<&'a mut ArrayOfTables, EditError> {
    table
        .entry(key)
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .ok_or(EditError::Form)
}

/// Sets the keys in `table`. If both the old and the new value are tables, merges them. Removes a key that the table
/// has under its other name.
pub(super) fn merge(table: &mut dyn TableLike, keys: &Keys) -> Result<(), EditError> {
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
