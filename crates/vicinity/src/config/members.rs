//! The message plane's members.

use message::Board;
use message::remote::Member;
use toml::Spanned;

use std::time::Duration;

use super::diagnostic::ValueError;
use super::model::MAX_MEMBERS;
use super::owner::Owner;
use super::values::{Unique, check_name, interface};
use super::{file, owner, values};
use crate::message_uplink::{HOST, PEER_TIMEOUT, UPLINK, Uplink};
use crate::runtime_paths::{FOLDERS, SOCKETS};

/// Checks the `[message]` table.
pub(super) fn check(
    text: &str,
    plane: &Spanned<file::Message>,
) -> Result<Vec<(Member, Owner)>, ValueError> {
    let members = &plane.get_ref().member;
    if members.is_empty() {
        let help = "add a [[message.member]] table with a `name`: a VM's, or `host`";
        let message = "the message plane has no members";
        return Err(ValueError::new(plane.span(), message, help));
    }
    if let Some(extra) = members.get(MAX_MEMBERS) {
        let message = format!("the message plane has at most {MAX_MEMBERS} members");
        return Err(ValueError::new(
            extra.span(),
            message,
            "remove some members",
        ));
    }
    let mut names = Unique::new(text, "member");
    let mut nics = Unique::new(text, "NIC id");
    let check = |member: &Spanned<file::Member>| {
        let member = member.get_ref();
        let file::Member { name, group, .. } = member;
        check_name(name)?;
        if name.get_ref() == UPLINK && plane.get_ref().uplink.is_some() {
            let message = format!("the name `{UPLINK}` is reserved for the uplink");
            return Err(ValueError::new(
                name.span(),
                message,
                "give it another name",
            ));
        }
        group.as_ref().map_or(Ok(()), check_name)?;
        names.take(name.get_ref().clone(), name.span())?;
        nics.take(Board::nic_of(name.get_ref()), name.span())?;
        let owner = owner::check(owner::OwnerKeys {
            user: member.owner.as_ref(),
            label: member.owner_label.as_ref(),
            cgroup: member.owner_cgroup.as_ref(),
        })?;
        if let Some(text) = member.owner.as_ref().filter(|_| name.get_ref() == HOST) {
            let message = format!("the member `{HOST}` belongs to the daemon");
            return Err(ValueError::new(text.span(), message, "remove `owner`"));
        }
        let member = Member {
            name: name.get_ref().clone(),
            group: group.as_ref().map(|group| group.get_ref().clone()),
            ..Member::default()
        };
        Ok((member, owner))
    };
    members.iter().map(check).collect()
}

/// Checks the uplink of the `[message]` table.
pub(super) fn uplink(uplink: &file::MessageUplink) -> Result<Uplink, ValueError> {
    let host_name = uplink.host_name.as_ref();
    host_name.map_or(Ok(()), check_name)?;
    Ok(Uplink {
        interface: interface(&uplink.interface, "an interface")?.clone(),
        host_name: host_name.map(|name| name.get_ref().clone()),
        peer_timeout: uplink
            .peer_timeout
            .as_ref()
            .map_or(Ok(PEER_TIMEOUT), seconds)?,
        has_program_sockets: uplink
            .program_sockets
            .as_ref()
            .is_some_and(|sockets| *sockets.get_ref()),
    })
}

/// Checks the Unix group whose users may use the board of this host.
pub(super) fn unix_group(plane: &file::Message) -> Result<Option<u32>, ValueError> {
    let is_host = |member: &Spanned<file::Member>| member.get_ref().name.get_ref() == HOST;
    if let Some(group) = &plane.unix_group {
        if !plane.member.iter().any(is_host) {
            let message = format!("this group is for programs of the member `{HOST}`");
            let help =
                format!("add a [[message.member]] with the name `{HOST}`, or remove the key");
            return Err(ValueError::new(group.span(), message, help));
        }
        return values::unix_group(group).map(Some);
    }
    let uplink = plane.uplink.as_ref();
    match uplink.and_then(|uplink| uplink.program_sockets.as_ref()) {
        Some(sockets) if *sockets.get_ref() => Err(ValueError::new(
            sockets.span(),
            "this key is for programs of a Unix group",
            "add `unix-group` to [message]; programs of root need neither",
        )),
        _ => Ok(None),
    }
}

fn seconds(text: &Spanned<i64>) -> Result<Duration, ValueError> {
    let seconds = u32::try_from(*text.get_ref()).ok();
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
        .ok_or_else(|| {
            let message = format!("a host cannot time out after {} s", text.get_ref());
            let help = format!("write 1 or more; the default is {}", PEER_TIMEOUT.as_secs());
            ValueError::new(text.span(), message, help)
        })
}

/// Checks that a network does not have the name of the message plane's or the direct channel's
/// folder, because the networks' folders are in the same parent folder.
pub(super) fn leaves_room(network: &Spanned<String>) -> Result<(), ValueError> {
    let name = network.get_ref().as_str();
    if !FOLDERS.contains(&name) && !SOCKETS.contains(&name) {
        return Ok(());
    }
    let message = format!("the folder `{name}` is reserved");
    let help = "give the network another name";
    Err(ValueError::new(network.span(), message, help))
}
