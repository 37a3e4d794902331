//! The message plane's members.

use message::Board;
use message::far::Member;
use toml::Spanned;

use super::check::{Unique, named};
use super::complaint::Mistake;
use super::{MAX_MEMBERS, file};
use crate::plane::{BOARD, FOLDER};

/// Check the `[message]` table.
pub(super) fn check(text: &str, plane: &Spanned<file::Message>) -> Result<Vec<Member>, Mistake> {
    let members = &plane.get_ref().member;
    if members.is_empty() {
        let help = "add a [[message.member]] table with a `name`: a VM's, or `host`";
        let message = "the message plane has no members";
        return Err(Mistake::new(plane.span(), message, help));
    }
    if let Some(extra) = members.get(MAX_MEMBERS) {
        let message = format!("the message plane has at most {MAX_MEMBERS} members");
        return Err(Mistake::new(extra.span(), message, "remove some"));
    }
    let mut names = Unique::new(text, "member");
    let mut nics = Unique::new(text, "NIC id");
    let check = |member: &Spanned<file::Member>| {
        let file::Member { name, group } = member.get_ref();
        named(name)?;
        group.as_ref().map_or(Ok(()), named)?;
        names.take(name.get_ref().clone(), name.span())?;
        nics.take(Board::nic_of(name.get_ref()), name.span())?;
        Ok(Member {
            name: name.get_ref().clone(),
            group: group.as_ref().map(|group| group.get_ref().clone()),
            ..Member::default()
        })
    };
    members.iter().map(check).collect()
}

/// Networks' folders are beside the message plane's.
pub(super) fn leaves_room(network: &Spanned<String>) -> Result<(), Mistake> {
    let name = network.get_ref().as_str();
    if ![BOARD, FOLDER].contains(&name) {
        return Ok(());
    }
    let message = format!("the message plane has the folder `{name}`");
    let help = "give the network another name";
    Err(Mistake::new(network.span(), message, help))
}
