//! The configuration: its source ([`source`]), its keys as written ([`mod@file`]), its validation
//! ([`check`]), the error messages ([`diagnostic`]), and changes to its text by commands ([`edit`]). The rest
//! of the program uses [`Config`] only, which is always valid.

mod check;
pub(crate) mod deprecated;
mod diagnostic;
mod direct;
mod edit;
mod file;
mod key_path;
mod limits;
mod members;
mod mirrors;
mod mode;
mod model;
mod owner;
mod parse;
mod pushes;
mod rules;
mod source;
mod spaces;
mod values;
mod vsock;
mod web;

pub(crate) use diagnostic::ConfigError;
pub(crate) use direct::TrustGroup;
pub(crate) use edit::{Edit, EditError, Keys};
pub(crate) use mode::Mode;
pub(crate) use model::{Config, MAX_SOCKET_PATH, Mirrored, Network, Port, UplinkInterface};
pub(crate) use owner::{Owner, matches};
pub(crate) use parse::{as_json, keys, of_text};
pub(crate) use pushes::{Credential, Push};
pub(crate) use source::{DEFAULT, SaveError, Source, load};
pub(crate) use spaces::{MIN_SLOTS as MIN_SPACE_SLOTS, Objective, SLOT_BYTES, Space};
pub(crate) use switch::limits::MAX_PORTS;
pub(crate) use vsock::{Vsock, separate};
pub(crate) use web::WebListen;

#[cfg(test)]
mod tests;
