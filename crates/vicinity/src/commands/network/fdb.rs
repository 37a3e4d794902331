//! `vicinity network show NETWORK --fdb`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::client;
use crate::commands::failure::Failure;
use crate::commands::output::as_json;
use crate::status::{FdbEntryStatus, FdbOrigin, Kind};
use crate::table::{self, Align};

/// Returns the entries of a network's FDB, as a table or as JSON.
pub(super) fn list(runtime_dir: &Path, network: &str, json: bool) -> Result<String, Failure> {
    let path = format!("/v1/networks/{}/fdb", client::segment(network));
    let entries: Vec<FdbEntryStatus> = client::get(runtime_dir, &path)?;
    if json {
        return Ok(as_json(&entries));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(table(&entries, now.unwrap_or_default().as_secs()))
}

fn table(entries: &[FdbEntryStatus], now: u64) -> String {
    if entries.is_empty() {
        return "the FDB has no entries: no VM has sent a frame, and no port has an address in the configuration\n".to_owned();
    }
    let head = [
        ("PORT", Align::Left),
        ("MAC", Align::Left),
        ("VLAN", Align::Right),
        ("ORIGIN", Align::Left),
        ("SINCE", Align::Right),
        ("LAST FRAME", Align::Right),
    ];
    let ago = |seconds: u64| format!("{} ago", duration(seconds));
    let row = |entry: &FdbEntryStatus| {
        vec![
            match entry.kind {
                Kind::Vm => entry.vm.clone(),
                Kind::Uplink => format!("(uplink {})", entry.vm),
            },
            entry.mac.to_string(),
            match entry.vlan {
                0 => "-".to_owned(),
                vlan => vlan.to_string(),
            },
            match entry.origin {
                FdbOrigin::Pinned => "pinned",
                FdbOrigin::Learnt => "learnt",
            }
            .to_owned(),
            ago(now.saturating_sub(entry.since)),
            entry
                .idle_seconds
                .map_or_else(|| "-".to_owned(), |idle| ago(idle.into())),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    table::format(&head, &rows)
}

/// Formats seconds with the two greatest units.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_port_vlan_origin_and_since() {
        let entry = |vm: &str, kind, vlan, origin, since, idle_seconds| FdbEntryStatus {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            vlan,
            vm: vm.to_owned(),
            kind,
            origin,
            since,
            idle_seconds,
        };
        let entries = [
            entry("web", Kind::Vm, 0, FdbOrigin::Pinned, 1000, None),
            entry(
                "vic0",
                Kind::Uplink,
                12,
                FdbOrigin::Learnt,
                93_700,
                Some(75),
            ),
        ];
        let expected = "\
            PORT           MAC                VLAN  ORIGIN        SINCE      LAST FRAME\n\
            web            52:54:00:00:00:01     -  pinned  1 d 1 h ago               -\n\
            (uplink vic0)  52:54:00:00:00:01    12  learnt     0 s ago  1 min 15 s ago\n";
        let expected = expected.replace("    0 s ago", "     0 s ago");
        assert_eq!(table(&entries, 93_700), expected);
        assert_eq!(table(&[], 0).lines().count(), 1);
    }
}
