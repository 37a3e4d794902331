//! Commands that change a running daemon: `vicinity network|port add|set|remove`, `reload`, and
//! `config show`.

use std::path::Path;

use serde_json::{Map, Value};

use crate::client::{self, ApiRequest, ClientError, Method};
use crate::config::{Keys, deprecated};
use crate::status::ConfigStatus;

/// A key of the configuration and its value, as `KEY=VALUE` on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyValue {
    /// The keys from the outermost table inwards.
    path: Vec<String>,
    /// Null removes the key.
    value: Value,
}

impl std::str::FromStr for KeyValue {
    type Err = String;

    /// Parses the value as in the file. A value that has none of the other types is a string:
    /// `vlan=10`, `mac=52:54:00:00:00:01`, `trunk=[10, "20-29"]`, `limits.send.rate=1 Gbit/s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (keys, value) = text
            .split_once('=')
            .ok_or("write KEY=VALUE, like vlan=10; KEY= removes the key")?;
        let path: Vec<String> = keys.split('.').map(|key| key.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(format!("`{keys}` is not a key"));
        }
        let value = value.trim();
        let value = match value {
            "" => Value::Null,
            _ => written(value).unwrap_or_else(|| Value::from(value)),
        };
        Ok(Self { path, value })
    }
}

/// Parses a TOML value. Returns `None` if the text is not one.
fn written(value: &str) -> Option<Value> {
    let table: toml::Table = toml::from_str(&format!("value = {value}")).ok()?;
    match table.get("value")? {
        // TOML reads a date without quotes. The caller takes it as a string, as with quotes.
        toml::Value::Datetime(_) => None,
        value => serde_json::to_value(value).ok(),
    }
}

/// Returns the pairs as nested tables, with `name` as one more pair.
fn keys(name: Option<(&str, &str)>, pairs: &[KeyValue]) -> Keys {
    let mut keys = Keys::new();
    if let Some((key, name)) = name {
        keys.insert(key.to_owned(), Value::from(name));
    }
    for pair in pairs {
        let mut renamed = pair.path.iter().map(|key| (key, deprecated::current(key)));
        if let Some((old, Some(new))) = renamed.next_back() {
            tracing::warn!("{}", deprecated::warning(old, new));
        }
        put(&mut keys, &pair.path, &pair.value);
    }
    keys
}

fn put(keys: &mut Keys, path: &[String], value: &Value) {
    match path {
        [] => {}
        [key] => drop(keys.insert(key.clone(), value.clone())),
        [key, below @ ..] => {
            let table = keys
                .entry(key.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            if !table.is_object() {
                *table = Value::Object(Map::new());
            }
            if let Value::Object(table) = table {
                put(table, below, value);
            }
        }
    }
}

/// The object that a command changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// A network.
    Network(&'a str),
    /// A port: its network, and its VM.
    Port(&'a str, &'a str),
    /// The space of a VM.
    Space(&'a str),
}

impl<'a> Target<'a> {
    fn path(self) -> String {
        match self {
            Self::Network(name) | Self::Port(_, name) | Self::Space(name) => {
                format!("{}/{}", self.list(), client::segment(name))
            }
        }
    }

    fn list(self) -> String {
        match self {
            Self::Network(_) => "/v1/networks".to_owned(),
            Self::Port(network, _) => format!("/v1/networks/{}/ports", client::segment(network)),
            Self::Space(_) => "/v1/spaces".to_owned(),
        }
    }

    fn name(self) -> (&'static str, &'a str) {
        match self {
            Self::Network(name) => ("name", name),
            Self::Port(_, vm) | Self::Space(vm) => ("vm", vm),
        }
    }
}

/// Adds the target with these keys.
pub(crate) fn add(
    runtime_dir: &Path,
    target: Target<'_>,
    pairs: &[KeyValue],
) -> Result<String, ClientError> {
    let keys = keys(Some(target.name()), pairs);
    change(
        runtime_dir,
        ApiRequest::json(Method::POST, &target.list(), &keys),
    )
}

/// Sets keys of the target.
pub(crate) fn set(
    runtime_dir: &Path,
    target: Target<'_>,
    pairs: &[KeyValue],
) -> Result<String, ClientError> {
    let keys = keys(None, pairs);
    change(
        runtime_dir,
        ApiRequest::json(Method::PATCH, &target.path(), &keys),
    )
}

/// Removes the target.
pub(crate) fn remove(runtime_dir: &Path, target: Target<'_>) -> Result<String, ClientError> {
    change(
        runtime_dir,
        ApiRequest::without_body(Method::DELETE, &target.path()),
    )
}

/// Has the daemon read its configuration file again.
pub(crate) fn reload(runtime_dir: &Path) -> Result<String, ClientError> {
    change(
        runtime_dir,
        ApiRequest::without_body(Method::POST, "/v1/reload"),
    )
    .map(|_| String::new())
}

/// Returns the text of the configuration in force.
pub(crate) fn show(runtime_dir: &Path) -> Result<String, ClientError> {
    let config: ConfigStatus = client::get(runtime_dir, "/v1/config")?;
    Ok(config.text)
}

/// Sends a change. Returns the text to print: empty, unless the daemon cannot keep the change
/// beyond its own end.
fn change(runtime_dir: &Path, request: ApiRequest) -> Result<String, ClientError> {
    let (_, config): (u32, ConfigStatus) = client::request(runtime_dir, request)?;
    Ok(match config.file {
        Some(_) => String::new(),
        None => "the change is lost when the daemon ends, because it was started without --config and has no \
            configuration file\n"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(texts: &[&str]) -> Value {
        let pairs: Vec<KeyValue> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Value::Object(keys(None, &pairs))
    }

    #[test]
    fn values_are_as_in_the_file_and_anything_else_is_a_text() {
        let seen = given(&[
            "vlan=10",
            "mac=52:54:00:00:00:01",
            "trunk=[10, \"20-29\"]",
            "router=true",
            "role=private",
            "socket=\"/run/a b\"",
            "native-vlan=",
        ]);
        let expected = json!({
            "vlan": 10, "mac": "52:54:00:00:00:01", "trunk": [10, "20-29"], "router": true,
            "role": "private", "socket": "/run/a b", "native-vlan": null,
        });
        assert_eq!(seen, expected);
    }

    #[test]
    fn dots_lead_into_tables() {
        let seen = given(&["limits.send.rate=1 Gbit/s", "limits.broadcast=5"]);
        let expected = json!({"limits": {"send": {"rate": "1 Gbit/s"}, "broadcast": 5}});
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_word_without_a_value_is_no_pair() {
        for wrong in ["vlan", "=10", "limits.=1", ""] {
            assert!(wrong.parse::<KeyValue>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(
            Target::Port("a/b", "..%").path(),
            "/v1/networks/a%2Fb/ports/..%25"
        );
    }
}
