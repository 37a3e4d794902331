//! `vicinity message info` and `vicinity message counters`.

use std::fmt::Write;
use std::path::Path;

use message::remote::BOARD;
use message::{Board, MessageError, limits};
use serde::Serialize;
use window::calibration::Thresholds;

use crate::client::{self, ClientError};
use crate::commands::failure::Failure;
use crate::commands::output::as_json;
use crate::status::{MemberStatus, MessageStatus, UplinkStatus};
use crate::table::{self, Align};

/// What there is to know of the message plane here.
#[derive(Debug, Serialize)]
struct Info {
    /// The board's folder.
    board: String,
    /// Its NIC id; none while no endpoint was ever opened.
    nic: Option<String>,
    /// Endpoints that are open on it.
    endpoints: Vec<u32>,
    /// Whether there is a way to other members.
    gateway: bool,
    /// Largest eager message, in bytes.
    eager: usize,
    /// Bytes up to which a send is buffered.
    buffered: u64,
    /// How long programs on this machine poll, by what it costs to sleep.
    polling: Polling,
    /// The members, where this host's daemon joins some.
    plane: Option<MessageStatus>,
}

/// The measured thresholds, in nanoseconds: see `window::calibration`.
#[derive(Debug, Serialize)]
struct Polling {
    switch_time: u128,
    spin: u128,
    remote_spin: u128,
    lost_cpu: u128,
}

impl Polling {
    fn here() -> Self {
        let thresholds = Thresholds::of_this_process();
        Self {
            switch_time: thresholds.switch_time.as_nanos(),
            spin: thresholds.spin.as_nanos(),
            remote_spin: thresholds.remote_spin.as_nanos(),
            lost_cpu: thresholds.lost_cpu.as_nanos(),
        }
    }
}

/// Describes the board in `runtime_dir`, and the members that the daemon there joins, if a daemon
/// runs.
pub(crate) fn info(runtime_dir: &Path, json: bool) -> Result<String, Failure> {
    let folder = runtime_dir.join(BOARD);
    let mut info = Info {
        board: folder.display().to_string(),
        nic: None,
        endpoints: Vec::new(),
        gateway: false,
        eager: limits::EAGER,
        buffered: limits::MEDIUM,
        polling: Polling::here(),
        plane: match ask(runtime_dir) {
            // In a VM no daemon runs.
            Err(ClientError::NoDaemon { .. }) => None,
            other => other?,
        },
    };
    // This command must not create the NIC id.
    if folder.join("nic").exists() {
        let board = Board::open(&folder).map_err(MessageError::from)?;
        info.nic = Some(format!("{:012x}", board.nic()));
        info.endpoints = board.endpoints().map_err(MessageError::from)?;
        info.gateway = board.has_gateway();
    }
    Ok(match json {
        true => as_json(&info),
        false => text(&info),
    })
}

fn ask(runtime_dir: &Path) -> Result<Option<MessageStatus>, ClientError> {
    client::get(runtime_dir, "/v1/messages")
}

fn text(info: &Info) -> String {
    let endpoints: Vec<_> = info.endpoints.iter().map(u32::to_string).collect();
    let endpoints = match endpoints.is_empty() {
        true => "none".to_owned(),
        false => endpoints.join(", "),
    };
    let nic = info.nic.as_deref().unwrap_or("none");
    let gateway = if info.gateway { "yes" } else { "no" };
    let mut text = format!(
        "board      {}\nNIC id     {nic}\nendpoints  {endpoints}\ngateway    {gateway}\nmessages   \
         eager up to {} B, sends buffered up to {} B, rendezvous above\n\
         polling    {} us before a sleep, {} us with remote peers\n",
        info.board,
        info.eager,
        info.buffered,
        info.polling.spin / 1000,
        info.polling.remote_spin / 1000
    );
    if let Some(plane) = &info.plane {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "plane      {}", state(plane));
        if let Some(reason) = &plane.gateway_reason {
            let _ = writeln!(text, "           the gateway of this host: {reason}");
        }
        if let Some(reason) = &plane.uplink_reason {
            let _ = writeln!(text, "           the uplink: {reason}");
        }
        text += "\n";
        text += &members(plane);
    }
    text
}

fn state(plane: &MessageStatus) -> String {
    match (&plane.reason, plane.restarts) {
        (Some(reason), _) => format!("down: {reason}"),
        (None, 0) => "up".to_owned(),
        (None, restarts) => format!("up, restarted {restarts} times"),
    }
}

/// Returns the counters of the members and of the uplink.
pub(crate) fn counters(runtime_dir: &Path, json: bool) -> Result<String, Failure> {
    let plane = ask(runtime_dir)?;
    if json {
        return Ok(as_json(&plane));
    }
    Ok(match plane {
        None => {
            "the daemon has no message plane; add [[message.member]] to the configuration\n".into()
        }
        Some(plane) if !plane.up => format!("the message plane is {}\n", state(&plane)),
        Some(plane) => members(&plane) + &plane.uplink.map(on_the_wire).unwrap_or_default(),
    })
}

fn members(plane: &MessageStatus) -> String {
    let head = [
        ("MEMBER", Align::Left),
        ("GROUP", Align::Left),
        ("NIC ID", Align::Left),
        ("STATE", Align::Left),
        ("LINKS", Align::Right),
        ("JOINS", Align::Right),
        ("LINKS TOTAL", Align::Right),
        ("MEDIATED", Align::Right),
        ("", Align::Right),
        ("ERRORS", Align::Right),
    ];
    let rows: Vec<_> = plane.members.iter().map(row).collect();
    table::format(&head, &rows)
}

/// Returns the counters of the uplink as text.
fn on_the_wire(uplink: UplinkStatus) -> String {
    let UplinkStatus {
        sent,
        received,
        ignored,
        lost,
        resent,
        repeated_pulls,
        refused,
        ..
    } = uplink;
    format!(
        "\nuplink: {sent} frames sent, {received} received, {ignored} of them ignored, {lost} lost because \
         the receive buffer was full\n        {resent} messages sent again, {repeated_pulls} blocks requested again, \
         {refused} refusals sent\n"
    )
}

fn row(member: &MemberStatus) -> Vec<String> {
    let state = match (member.connected, member.joined, member.silent) {
        (false, _, _) => "disconnected",
        (true, false, _) => "connected",
        (true, true, false) => "joined",
        (true, true, true) => "silent",
    };
    vec![
        member.name.clone(),
        member.group.clone().unwrap_or_else(|| "-".to_owned()),
        member.nic.clone(),
        state.to_owned(),
        member.links.to_string(),
        member.joins.to_string(),
        member.links_total.to_string(),
        member.messages.to_string(),
        table::bytes(member.bytes),
        member.protocol_errors.to_string(),
    ]
}
