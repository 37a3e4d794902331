//! The direct channel's trust groups.

use ::direct::layout::MEMBERS;
use ::direct::{Policies, Policy};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;
use super::values::{Unique, check_name};

/// Most pairs that a group can list.
const MAX_PAIRS: usize = 60;

/// VMs of one owner, which may see each other's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustGroup {
    /// A valid name.
    pub(crate) name: String,
    /// Names of VMs: at least two, all different, no more than a window has room for.
    pub(crate) members: Vec<String>,
    /// The policy of pairs that are not listed.
    pub(crate) policy: Policy,
    /// Pairs of members.
    pub(crate) pairs: Vec<(String, String, Policy)>,
}

impl TrustGroup {
    /// Returns the policies in the form that the direct channel takes.
    pub(crate) fn policies(&self) -> Policies {
        Policies {
            others: self.policy,
            pairs: self.pairs.clone(),
        }
    }
}

/// Checks the `[direct]` table.
pub(super) fn check(text: &str, direct: &file::Direct) -> Result<Vec<TrustGroup>, ValueError> {
    let mut names = Unique::new(text, "group");
    let mut vms = Unique::new(text, "VM in a trust group");
    let groups = direct.group.iter();
    groups
        .map(|group| self::group(group, &mut names, &mut vms))
        .collect()
}

fn group(
    written: &Spanned<file::Group>,
    names: &mut Unique<'_, String>,
    vms: &mut Unique<'_, String>,
) -> Result<TrustGroup, ValueError> {
    let group = written.get_ref();
    check_name(&group.name)?;
    names.take(group.name.get_ref().clone(), group.name.span())?;
    let members = group.members.get_ref();
    if !(2..=MEMBERS as usize).contains(&members.len()) {
        let message = format!("the trust group has {} members", members.len());
        let help = format!("list 2 to {MEMBERS} members");
        return Err(ValueError::new(group.members.span(), message, help));
    }
    for vm in members {
        check_name(vm)?;
        vms.take(vm.get_ref().clone(), vm.span())?;
    }
    if let Some(extra) = group.pair.get(MAX_PAIRS) {
        let message = format!("a trust group lists at most {MAX_PAIRS} pairs");
        let help = "set the policy of most pairs as the group's `policy`, and list only the others";
        return Err(ValueError::new(extra.span(), message, help));
    }
    let pairs = group.pair.iter().map(|pair| self::pair(group, pair));
    Ok(TrustGroup {
        name: group.name.get_ref().clone(),
        members: members.iter().map(|vm| vm.get_ref().clone()).collect(),
        policy: group.policy,
        pairs: pairs.collect::<Result<_, _>>()?,
    })
}

fn pair(
    group: &file::Group,
    pair: &Spanned<file::GroupPair>,
) -> Result<(String, String, Policy), ValueError> {
    let file::GroupPair { vms, policy } = pair.get_ref();
    let (one, other) = vms.get_ref();
    for vm in [one, other] {
        let mut members = group.members.get_ref().iter();
        if !members.any(|member| member.get_ref() == vm.get_ref()) {
            let message = format!(
                "`{}` is not a member of this group",
                vm.get_ref().escape_debug()
            );
            return Err(ValueError::new(vm.span(), message, "add it to `members`"));
        }
    }
    if one.get_ref() == other.get_ref() {
        let message = "a VM and itself are not a pair";
        return Err(ValueError::new(vms.span(), message, "name two VMs"));
    }
    Ok((one.get_ref().clone(), other.get_ref().clone(), *policy))
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    const GOOD: &str = "
[[direct.group]]
name = \"shop\"
members = [\"web\", \"db\", \"cache\"]
[[direct.group.pair]]
vms = [\"cache\", \"web\"]
policy = \"never\"
";

    #[test]
    fn a_group_is_read() {
        let config = parse("test.toml", GOOD, None).unwrap();
        let [group] = config.groups.as_slice() else {
            panic!("one group");
        };
        assert_eq!(group.members, ["web", "db", "cache"]);
        let policies = group.policies();
        assert_eq!(policies.of("web", "cache"), Policy::Never);
        assert_eq!(policies.of("web", "db"), Policy::Always);
    }

    #[test]
    fn a_group_that_makes_no_sense_is_shown() {
        let complains = |from: &str, to: &str, parts: [&str; 2]| {
            let text = GOOD.replace(from, to);
            let error = parse("test.toml", &text, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        let members = "[\"web\", \"db\", \"cache\"]";
        complains(members, "[\"web\"]", ["direct.group.members", "2 to 16"]);
        let twice = "[\"web\", \"db\", \"cache\", \"db\"]";
        complains(members, twice, ["\"db\" is given twice", "line 4"]);
        complains(
            members,
            "[\"web\", \"db\"]",
            ["`cache` is not a member", "`members`"],
        );
        complains(
            "[\"cache\", \"web\"]",
            "[\"web\", \"web\"]",
            ["itself", "two VMs"],
        );
        complains("never", "maybe", ["direct.group.pair.policy", "maybe"]);
        complains("shop", "a/b", ["direct.group.name", "a/b"]);
        let network = "[[network]]\nname = \"direct\"\n[[direct.group]]";
        complains(
            "[[direct.group]]",
            network,
            ["network.name", "another name"],
        );
    }
}
