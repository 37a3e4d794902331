//! The sockets plane's guests: `[[vsock]]`.

use std::ops::RangeInclusive;

use toml::Spanned;
use vsock::guest::cid_of;
use vsock::header::{FIRST_GUEST_CID, LAST_GUEST_CID};
use vsock::limits::MAX_GUESTS;
use vsock::policy::Rules;

use super::diagnostic::ValueError;
use super::file;
use super::owner::{self, Owner, OwnerKeys};
use super::values::{Unique, check_name};

/// A VM's socket device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vsock {
    /// The VM, by a valid name.
    pub(crate) vm: String,
    /// Its CID, different from all others.
    pub(crate) cid: u32,
    /// To whom it may connect, and who may connect to it.
    pub(crate) rules: Rules,
    /// The processes that may connect as the front-end.
    pub(crate) owner: Owner,
}

/// Checks the `[[vsock]]` tables.
pub(super) fn check(text: &str, tables: &[Spanned<file::Vsock>]) -> Result<Vec<Vsock>, ValueError> {
    if let Some(extra) = tables.get(MAX_GUESTS) {
        let message = format!("the configuration has more than {MAX_GUESTS} socket devices");
        return Err(ValueError::new(
            extra.span(),
            message,
            "remove some of them",
        ));
    }
    let mut vms = Unique::new(text, "VM with a socket device");
    let mut cids = Unique::new(text, "CID");
    let check = |table: &Spanned<file::Vsock>| {
        let table = table.get_ref();
        check_name(&table.vm)?;
        let vm = table.vm.get_ref().clone();
        vms.take(vm.clone(), table.vm.span())?;
        let (cid, place) = match &table.cid {
            Some(cid) => (self::cid(cid)?, cid.span()),
            None => (cid_of(&vm), table.vm.span()),
        };
        cids.take(cid, place)?;
        for group in &table.groups {
            check_name(group)?;
        }
        let ports = table.ports.as_ref();
        let ports = ports.map(|all| all.iter().map(self::ports).collect::<Result<_, _>>());
        Ok(Vsock {
            vm,
            cid,
            rules: Rules {
                groups: table
                    .groups
                    .iter()
                    .map(|group| group.get_ref().clone())
                    .collect(),
                ports: ports.transpose()?,
            },
            owner: owner::check(OwnerKeys {
                user: table.owner.as_ref(),
                label: table.owner_label.as_ref(),
                cgroup: table.owner_cgroup.as_ref(),
            })?,
        })
    };
    tables.iter().map(check).collect()
}

fn cid(written: &Spanned<i64>) -> Result<u32, ValueError> {
    let cid = u32::try_from(*written.get_ref()).ok();
    cid.filter(|cid| (FIRST_GUEST_CID..=LAST_GUEST_CID).contains(cid))
        .ok_or_else(|| {
            let message = format!("{} cannot be a VM's CID", written.get_ref());
            let help = format!(
                "write a number from {FIRST_GUEST_CID} to {LAST_GUEST_CID}, or remove `cid`: then the CID is made \
                from the VM's name"
            );
            ValueError::new(written.span(), message, help)
        })
}

fn ports(written: &Spanned<file::Ports>) -> Result<RangeInclusive<u32>, ValueError> {
    let range = match written.get_ref() {
        file::Ports::One(port) => u32::try_from(*port).ok().map(|port| port..=port),
        file::Ports::Range(text) => text.split_once('-').and_then(|(first, last)| {
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        }),
    };
    range.ok_or_else(|| {
        let help = "write a port from 0 to 4294967295, or a range of them like \"5000-5010\"";
        ValueError::new(written.span(), "this is not a port", help)
    })
}

/// Divides the VMs into sets that no common group connects. Each set has a process of its own, which maps
/// the memory of no other VM.
pub(crate) fn separate(all: &[Vsock]) -> Vec<Vec<Vsock>> {
    let mut sets: Vec<Vec<Vsock>> = Vec::new();
    for vsock in all {
        let shares = |set: &Vec<Vsock>| {
            let mut groups = set.iter().flat_map(|other| &other.rules.groups);
            groups.any(|group| vsock.rules.groups.contains(group))
        };
        let (joined, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(shares);
        sets = others;
        let mut set: Vec<Vsock> = joined.into_iter().flatten().collect();
        set.push(vsock.clone());
        sets.push(set);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    const GOOD: &str = "
[[vsock]]
vm = \"web\"
cid = 3
groups = [\"shop\"]
ports = [22, \"5000-5010\"]
[[vsock]]
vm = \"db\"
groups = [\"shop\", \"store\"]
ports = []
[[vsock]]
vm = \"alone\"
";

    #[test]
    fn socket_devices_are_read() {
        let config = parse("test.toml", GOOD, None).unwrap();
        let [web, db, alone] = config.vsocks.as_slice() else {
            panic!("three");
        };
        assert_eq!((web.cid, &web.vm[..]), (3, "web"));
        assert_eq!(web.rules.ports, Some(vec![22..=22, 5000..=5010]));
        assert_eq!(db.rules.ports, Some(Vec::new()));
        assert_eq!((db.cid, alone.cid), (cid_of("db"), cid_of("alone")));
        assert_eq!((&alone.rules.ports, alone.rules.groups.len()), (&None, 0));
    }

    #[test]
    fn vms_share_a_process_only_if_groups_connect_them() {
        let vsock = |vm: &str, groups: &[&str]| Vsock {
            vm: vm.to_owned(),
            cid: cid_of(vm),
            rules: Rules {
                groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                ports: None,
            },
            owner: Owner::default(),
        };
        let all = [
            vsock("a", &["x"]),
            vsock("b", &[]),
            vsock("c", &["y"]),
            vsock("d", &["z"]),
            vsock("e", &[]),
            vsock("f", &["y", "x"]),
        ];
        let mut sets: Vec<Vec<String>> = separate(&all)
            .iter()
            .map(|set| set.iter().map(|vsock| vsock.vm.clone()).collect())
            .collect();
        sets.iter_mut().for_each(|set| set.sort());
        sets.sort();
        assert_eq!(sets, [vec!["a", "c", "f"], vec!["b"], vec!["d"], vec!["e"]]);
    }

    #[test]
    fn a_device_that_makes_no_sense_is_shown() {
        let complains = |from: &str, to: &str, parts: [&str; 2]| {
            let text = GOOD.replace(from, to);
            let error = parse("test.toml", &text, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        for cid in ["2", "-1", "4294967295", "99999999999"] {
            complains("cid = 3", &format!("cid = {cid}"), ["vsock.cid", cid]);
        }
        complains("\"db\"", "\"web\"", ["vsock.vm", "given twice"]);
        let same = format!("cid = {}", cid_of("db"));
        complains("cid = 3", &same, ["CID", "given twice"]);
        for ports in ["-1", "\"5-4\"", "\"x\"", "\"1-\"", "4294967296"] {
            complains("[22,", &format!("[{ports},"), ["vsock.ports", "not a port"]);
        }
        complains("\"shop\", ", "\"a/b\", ", ["vsock.groups", "a/b"]);
        let network = "[[network]]\nname = \"vsock\"\naccept = true\n[[vsock]]\nvm = \"db\"";
        complains(
            "[[vsock]]\nvm = \"db\"",
            network,
            ["network.name", "another name"],
        );
    }
}
