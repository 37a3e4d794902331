//! The configuration file as it is written: its keys and their places in the text.

mod space;
mod user;
mod vsock;
mod web;

use std::path::PathBuf;

use ::direct::Policy;
use serde::Deserialize;
use switch::guard::Role;
use toml::Spanned;
use toml::de::DeTable;

use super::deprecated::{self, DeprecatedKey};
use super::diagnostic::ValueError;
use super::key_path::tables;
use super::mode::Mode;
use crate::name;
pub(super) use space::{Objective, Space};
pub(super) use user::User;
pub(super) use vsock::{Ports, Vsock};
pub(super) use web::Web;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct File {
    pub(super) runtime_dir: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) network: Vec<Spanned<Network>>,
    pub(super) message: Option<Spanned<Message>>,
    pub(super) direct: Option<Direct>,
    pub(super) space_budget: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) space: Vec<Spanned<Space>>,
    #[serde(default)]
    pub(super) vsock: Vec<Spanned<Vsock>>,
    pub(super) web: Option<Web>,
}

/// The `[direct]` channel.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Direct {
    #[serde(default)]
    pub(super) group: Vec<Spanned<Group>>,
}

/// A `[[direct.group]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Spanned<String>,
    pub(super) members: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) pair: Vec<Spanned<GroupPair>>,
}

/// A `[[direct.group.pair]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct GroupPair {
    pub(super) vms: Spanned<(Spanned<String>, Spanned<String>)>,
    pub(super) policy: Policy,
}

/// The `[message]` plane.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Message {
    pub(super) unix_group: Option<Spanned<String>>,
    pub(super) uplink: Option<MessageUplink>,
    #[serde(default)]
    pub(super) member: Vec<Spanned<Member>>,
}

/// The message plane's `uplink = { … }`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct MessageUplink {
    pub(super) interface: Spanned<String>,
    pub(super) host_name: Option<Spanned<String>>,
    #[serde(rename = "peer-timeout", alias = "give-up")]
    pub(super) peer_timeout: Option<Spanned<i64>>,
    pub(super) program_sockets: Option<Spanned<bool>>,
}

/// A `[[message.member]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Member {
    pub(super) name: Spanned<String>,
    pub(super) group: Option<Spanned<String>>,
    pub(super) owner: Option<Spanned<User>>,
    pub(super) owner_label: Option<Spanned<String>>,
    pub(super) owner_cgroup: Option<Spanned<String>>,
}

/// A `[[network]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Network {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) accept: bool,
    pub(super) workers: Option<Spanned<i64>>,
    #[serde(rename = "moderation-us", alias = "gather-us")]
    pub(super) moderation_us: Option<Spanned<i64>>,
    #[serde(rename = "fdb-lookups", alias = "look-ups")]
    pub(super) fdb_lookups: Option<Spanned<i64>>,
    pub(super) uplink: Option<Spanned<Uplink>>,
    pub(super) limits: Option<Limits>,
    pub(super) multicast_snooping: Option<bool>,
    #[serde(default)]
    pub(super) port: Vec<Spanned<Port>>,
}

/// An `uplink = { … }`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Uplink {
    pub(super) tap: Option<Spanned<String>>,
    pub(super) interface: Option<Spanned<String>>,
    pub(super) xdp: Option<bool>,
    pub(super) trunk: Option<Spanned<Vec<Spanned<Vlans>>>>,
    pub(super) native_vlan: Option<Spanned<i64>>,
    pub(super) limits: Option<Floods>,
}

/// An uplink's `limits = { … }`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Floods {
    pub(super) broadcast: Option<Spanned<Frames>>,
    pub(super) multicast: Option<Spanned<Frames>>,
    pub(super) unknown_unicast: Option<Spanned<Frames>>,
}

/// A VLAN, or a range of them like `"20-29"`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a VLAN like 10, or a range of them like \"20-29\""
)]
pub(super) enum Vlans {
    One(i64),
    Range(String),
}

/// The `limits = { … }` of a port, or of all ports.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) send: Option<Rates>,
    pub(super) receive: Option<Rates>,
    pub(super) broadcast: Option<Spanned<Frames>>,
    pub(super) multicast: Option<Spanned<Frames>>,
    pub(super) unknown_unicast: Option<Spanned<Frames>>,
}

/// A `send = { … }` or `receive = { … }`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Rates {
    pub(super) rate: Option<Spanned<String>>,
    pub(super) frames: Option<Spanned<i64>>,
    pub(super) burst: Option<Spanned<String>>,
}

/// Frames a second.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "frames a second, like 1000, or \"unlimited\"")]
pub(super) enum Frames {
    Number(i64),
    Word(String),
}

/// A `[[network.port]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Port {
    pub(super) vm: Spanned<String>,
    pub(super) mac: Option<Spanned<String>>,
    pub(super) socket: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) mode: Mode,
    pub(super) owner: Option<Spanned<User>>,
    pub(super) owner_label: Option<Spanned<String>>,
    pub(super) owner_cgroup: Option<Spanned<String>>,
    pub(super) allowed_macs: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) allowed_ips: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) router: Option<bool>,
    pub(super) dhcp_server: Option<bool>,
    #[serde(default)]
    pub(super) role: Role,
    pub(super) limits: Option<Limits>,
    #[serde(default)]
    pub(super) multicast_router: bool,
    pub(super) mirror: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) vlan: Option<Spanned<i64>>,
    pub(super) trunk: Option<Spanned<Vec<Spanned<Vlans>>>>,
    pub(super) native_vlan: Option<Spanned<i64>>,
}

impl Uplink {
    /// Returns the name of the uplink's interface.
    pub(super) fn name(&self) -> Option<&Spanned<String>> {
        self.tap.as_ref().or(self.interface.as_ref())
    }
}

/// The keys of one kind of table, and those of the tables below it.
struct Keys(&'static [(&'static str, Option<&'static Keys>)]);

static FILE: Keys = Keys(&[
    ("runtime-dir", None),
    ("network", Some(&NETWORK)),
    ("message", Some(&MESSAGE)),
    ("direct", Some(&DIRECT)),
    ("space-budget", None),
    ("space", Some(&SPACE)),
    ("vsock", Some(&VSOCK)),
    ("web", Some(&WEB)),
]);
static VSOCK: Keys = Keys(&[
    ("vm", None),
    ("cid", None),
    ("groups", None),
    ("ports", None),
    ("owner", None),
    ("owner-label", None),
    ("owner-cgroup", None),
]);
static WEB: Keys = Keys(&[
    ("group", None),
    ("listen", None),
    ("host-name", None),
    ("token-file", None),
    ("certificate", None),
    ("key", None),
]);
static SPACE: Keys = Keys(&[
    ("vm", None),
    ("slots", None),
    ("objective", Some(&OBJECTIVE)),
    ("rate", None),
    ("listen", None),
    ("allow", None),
    ("token-file", None),
    ("certificate", None),
    ("key", None),
    ("push", None),
    ("push-token-file", None),
    ("push-keys-file", None),
    ("push-region", None),
    ("push-ca-file", None),
    ("cgroup", None),
]);
static OBJECTIVE: Keys = Keys(&[
    ("within-ms", None),
    ("percent", None),
    ("weight", None),
    ("class", None),
]);
static MESSAGE: Keys = Keys(&[
    ("unix-group", None),
    ("uplink", Some(&MESSAGE_UPLINK)),
    ("member", Some(&MEMBER)),
]);
static MESSAGE_UPLINK: Keys = Keys(&[
    ("interface", None),
    ("host-name", None),
    ("peer-timeout", None),
    ("program-sockets", None),
]);
static DIRECT: Keys = Keys(&[("group", Some(&GROUP))]);
static GROUP: Keys = Keys(&[
    ("name", None),
    ("members", None),
    ("policy", None),
    ("pair", Some(&GROUP_PAIR)),
]);
static GROUP_PAIR: Keys = Keys(&[("vms", None), ("policy", None)]);
static MEMBER: Keys = Keys(&[
    ("name", None),
    ("group", None),
    ("owner", None),
    ("owner-label", None),
    ("owner-cgroup", None),
]);
static NETWORK: Keys = Keys(&[
    ("name", None),
    ("accept", None),
    ("workers", None),
    ("moderation-us", None),
    ("fdb-lookups", None),
    ("uplink", Some(&UPLINK)),
    ("limits", Some(&LIMITS)),
    ("multicast-snooping", None),
    ("port", Some(&PORT)),
]);
static UPLINK: Keys = Keys(&[
    ("tap", None),
    ("interface", None),
    ("xdp", None),
    ("trunk", None),
    ("native-vlan", None),
    ("limits", Some(&FLOODS)),
]);
static FLOODS: Keys = Keys(&[
    ("broadcast", None),
    ("multicast", None),
    ("unknown-unicast", None),
]);
static LIMITS: Keys = Keys(&[
    ("send", Some(&RATES)),
    ("receive", Some(&RATES)),
    ("broadcast", None),
    ("multicast", None),
    ("unknown-unicast", None),
]);
static RATES: Keys = Keys(&[("rate", None), ("frames", None), ("burst", None)]);
static PORT: Keys = Keys(&[
    ("vm", None),
    ("mac", None),
    ("socket", None),
    ("mode", None),
    ("owner", None),
    ("owner-label", None),
    ("owner-cgroup", None),
    ("allowed-macs", None),
    ("allowed-ips", None),
    ("router", None),
    ("dhcp-server", None),
    ("role", None),
    ("limits", Some(&LIMITS)),
    ("multicast-router", None),
    ("mirror", None),
    ("vlan", None),
    ("trunk", None),
    ("native-vlan", None),
]);

/// Reads the text of a configuration file. Also returns the deprecated keys that the text uses.
pub(super) fn read(text: &str) -> Result<(File, Vec<DeprecatedKey>), ValueError> {
    let table = DeTable::parse(text).map_err(|error| ValueError::from_toml(&error))?;
    let mut deprecated = Vec::new();
    // serde would find unknown keys too, but reports neither their exact place nor a similar key.
    check_keys(table.get_ref(), &FILE, &mut deprecated)?;
    let file = toml::from_str(text).map_err(|error| ValueError::from_toml(&error))?;
    Ok((file, deprecated))
}

/// Returns all keys, as paths of tables.
pub(super) fn all() -> Vec<String> {
    let mut all = Vec::new();
    list(&FILE, "", &mut all);
    all
}

fn list(keys: &Keys, above: &str, all: &mut Vec<String>) {
    for (key, below) in keys.0 {
        let path = format!("{above}{key}");
        match below {
            Some(below) => list(below, &format!("{path}."), all),
            None => all.push(path),
        }
    }
}

fn check_keys(
    table: &DeTable<'_>,
    keys: &Keys,
    deprecated: &mut Vec<DeprecatedKey>,
) -> Result<(), ValueError> {
    for (key, value) in table {
        let known = |key: &str| keys.0.iter().find(|(name, _)| *name == key);
        match known(key.get_ref()) {
            None => match deprecated::current(key.get_ref()).filter(|new| known(new).is_some()) {
                Some(new) => deprecated.push(DeprecatedKey::new(table, key, new)?),
                None => return Err(unknown(key, keys)),
            },
            Some((_, Some(below))) => {
                for table in tables(value.get_ref()) {
                    check_keys(table, below, deprecated)?;
                }
            }
            Some((_, None)) => {}
        }
    }
    Ok(())
}

fn unknown(key: &Spanned<std::borrow::Cow<'_, str>>, keys: &Keys) -> ValueError {
    let known = || keys.0.iter().map(|(name, _)| *name);
    let list = known().collect::<Vec<_>>().join(", ");
    let help = match name::nearest(key.get_ref(), known()) {
        Some(near) => format!("did you mean `{near}`? The keys here are: {list}"),
        None => format!("the keys here are: {list}"),
    };
    ValueError::new(key.span(), format!("unknown key `{}`", key.get_ref()), help)
}
