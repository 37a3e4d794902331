//! The memory plane's spaces.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::diagnostic::ValueError;
use super::pushes::{self, Push};
use super::values::{Unique, absolute, check_name};
use super::{file, limits};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: u32 = 256 << 10;

/// Default number of slots: 64 MiB.
const SLOTS: u32 = 256;

/// Fewest slots: the largest write of a guest takes five slots, and every write must fit.
pub(crate) const MIN_SLOTS: u32 = 8;

/// Most slots: 256 GiB.
const MAX_SLOTS: u32 = 1 << 20;

/// The default share of slots for which a VM may have to wait.
const BLOCKED: f64 = 0.2;

/// Most spaces of one daemon: each has a process of its own.
const MAX_SPACES: usize = 64;

/// Most networks that a space lists.
const MAX_ALLOWED: usize = 64;

/// A space of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Space {
    /// A valid name.
    pub(crate) vm: String,
    /// The number of slots; `None` if the controller decides.
    pub(crate) slots: Option<u32>,
    /// The controller's objective for the space.
    pub(crate) objective: Objective,
    /// The limit of the send rate, in bytes a second.
    pub(crate) rate: Option<u64>,
    /// The address at which clients fetch files; `None` for a space without clients.
    pub(crate) listen: Option<SocketAddr>,
    /// The networks whose clients may fetch.
    pub(crate) allow: Vec<IpNet>,
    /// The file of the token; clients that present the token may fetch, too.
    pub(crate) token_file: Option<PathBuf>,
    /// The files of certificate and key for TLS; `None` without TLS.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// The store to which files are pushed, for a space without clients.
    pub(crate) push: Option<Push>,
    /// The cgroup that its process belongs to.
    pub(crate) cgroup: Option<PathBuf>,
}

/// The objective of a space, as far as the budget allows: this share of the slots that the VM requests is available
/// within this time after the VM began to compute the data for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Objective {
    /// Milliseconds.
    pub(crate) within_ms: u32,
    /// The share, in percent.
    pub(crate) percent: u32,
    /// The weight of its slots in the distribution of the remaining slots.
    pub(crate) weight: u32,
    /// The class. The floors of lower classes are met first.
    pub(crate) class: u32,
}

impl Default for Objective {
    fn default() -> Self {
        Self {
            within_ms: 1500,
            percent: 95,
            weight: 1,
            class: 0,
        }
    }
}

impl From<Objective> for space::demand::Objective {
    fn from(objective: Objective) -> Self {
        Self {
            seconds: f64::from(objective.within_ms) / 1e3,
            quantile: Some(f64::from(objective.percent) / 100.0),
            max_blocked: BLOCKED,
            weight: f64::from(objective.weight),
            class: u8::try_from(objective.class).unwrap_or(u8::MAX),
        }
    }
}

/// Checks `space-budget`.
pub(super) fn budget(written: &Spanned<i64>) -> Result<u32, ValueError> {
    let help = format!(
        "write 1 to {MAX_SLOTS} slots, each of {} KiB",
        SLOT_BYTES >> 10
    );
    number(written, 1..=MAX_SLOTS, "a budget", &help)
}

/// Checks the `[[space]]` tables, which share the `budget` if there is one.
pub(super) fn check(
    text: &str,
    spaces: &[Spanned<file::Space>],
    budget: Option<u32>,
) -> Result<Vec<Space>, ValueError> {
    if let Some(extra) = spaces.get(MAX_SPACES) {
        let message = format!("the configuration has more than {MAX_SPACES} spaces");
        return Err(ValueError::new(extra.span(), message, "remove some spaces"));
    }
    let mut vms = Unique::new(text, "space of VM");
    let mut places = Unique::new(text, "address to listen on");
    let mut left = budget.map_or(u64::MAX, u64::from);
    let check = |written: &Spanned<file::Space>| {
        let file::Space { vm, listen, .. } = written.get_ref();
        vms.take(vm.get_ref().clone(), vm.span())?;
        if let Some(listen) = listen {
            places.take(*listen.get_ref(), listen.span())?;
        }
        let space = space(written, budget)?;
        let least = u64::from(space.slots.unwrap_or(MIN_SLOTS));
        match left.checked_sub(least) {
            Some(after) => left = after,
            None => return Err(too_little(written.span(), budget.unwrap_or(0))),
        }
        Ok(space)
    };
    spaces.iter().map(check).collect()
}

fn too_little(place: std::ops::Range<usize>, budget: u32) -> ValueError {
    let message = format!("the spaces need more slots than the budget of {budget}");
    let help = format!(
        "raise `space-budget`, or give spaces fewer slots; a space without `slots` gets at least {MIN_SLOTS}"
    );
    ValueError::new(place, message, help)
}

fn space(written: &Spanned<file::Space>, budget: Option<u32>) -> Result<Space, ValueError> {
    let space = written.get_ref();
    check_name(&space.vm)?;
    let fixed = space.slots.as_ref().map(slots).transpose()?;
    let slots = match budget {
        Some(_) => fixed,
        None => Some(fixed.unwrap_or(SLOTS)),
    };
    let objective = space.objective.as_ref().map(objective).transpose()?;
    let listen = space.listen.as_ref().map(|listen| *listen.get_ref());
    let allow = space.allow.as_deref().unwrap_or_default();
    if let Some(extra) = allow.get(MAX_ALLOWED) {
        let message = format!("a space lists at most {MAX_ALLOWED} networks");
        return Err(ValueError::new(extra.span(), message, "merge some of them"));
    }
    let allow: Vec<_> = allow.iter().map(net).collect::<Result<_, _>>()?;
    let token_file = space.token_file.as_ref().map(absolute).transpose()?;
    if let (Some(listen), true) = (&space.listen, allow.is_empty() && token_file.is_none()) {
        let help = "list networks in `allow`, or set `token-file`; with `allow = [\"0.0.0.0/0\", \"::/0\"]`, \
            every client may fetch";
        let message = "no client may fetch from this space";
        return Err(ValueError::new(listen.span(), message, help));
    }
    let tls = match (&space.certificate, &space.key) {
        (Some(certificate), Some(key)) => Some((absolute(certificate)?, absolute(key)?)),
        (None, None) => None,
        (Some(lonely), None) | (None, Some(lonely)) => {
            let help = "add the other one, or remove this key to serve without TLS";
            return Err(ValueError::new(
                lonely.span(),
                "TLS needs both `certificate` and `key`",
                help,
            ));
        }
    };
    Ok(Space {
        vm: space.vm.get_ref().clone(),
        slots,
        objective: objective.unwrap_or_default(),
        rate: space.rate.as_ref().map(limits::rate).transpose()?,
        listen,
        allow,
        token_file,
        tls,
        push: pushes::check(space)?,
        cgroup: space.cgroup.as_ref().map(absolute).transpose()?,
    })
}

fn slots(written: &Spanned<i64>) -> Result<u32, ValueError> {
    let help = format!(
        "write {MIN_SLOTS} to {MAX_SLOTS} slots, each of {} KiB",
        SLOT_BYTES >> 10
    );
    number(written, MIN_SLOTS..=MAX_SLOTS, "a space", &help)
}

fn objective(written: &file::Objective) -> Result<Objective, ValueError> {
    let usual = Objective::default();
    let one = "an objective";
    let share = "write 1 to 99 percent";
    let class = "write 0, which the controller serves first, to 255";
    let or = |value: &Option<Spanned<i64>>, usual, range, what, help| {
        let value = value.as_ref();
        value.map_or(Ok(usual), |value| number(value, range, what, help))
    };
    Ok(Objective {
        within_ms: or(
            &written.within_ms,
            usual.within_ms,
            1..=3_600_000,
            one,
            "write 1 to 3600000 ms",
        )?,
        percent: or(&written.percent, usual.percent, 1..=99, one, share)?,
        weight: or(
            &written.weight,
            usual.weight,
            1..=1000,
            "a weight",
            "write 1 to 1000",
        )?,
        class: or(&written.class, usual.class, 0..=255, "a class", class)?,
    })
}

/// Checks that a number of `what` is in this range.
fn number(
    written: &Spanned<i64>,
    range: std::ops::RangeInclusive<u32>,
    what: &str,
    help: &str,
) -> Result<u32, ValueError> {
    let number = u32::try_from(*written.get_ref()).ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let message = format!("{what} of {} is out of range", written.get_ref());
            ValueError::new(written.span(), message, help)
        })
}

/// Parses a network, or a single address.
fn net(written: &Spanned<String>) -> Result<IpNet, ValueError> {
    let text = written.get_ref();
    let net = text.parse().ok();
    let net = net.or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)));
    net.ok_or_else(|| {
        let message = format!("`{}` is not an address", text.escape_debug());
        let help = "write an IP address, or a network like \"10.0.0.0/8\"";
        ValueError::new(written.span(), message, help)
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    const GOOD: &str = "
[[space]]
vm = \"web\"
slots = 64
rate = \"100 MB/s\"
listen = \"127.0.0.1:8080\"
allow = [\"10.0.0.0/8\", \"::1\"]
token-file = \"/etc/token\"
certificate = \"/etc/cert.pem\"
key = \"/etc/key.pem\"
cgroup = \"/sys/fs/cgroup/web\"
[[space]]
vm = \"db\"
";

    #[test]
    fn a_space_is_read() {
        let config = parse("test.toml", GOOD, None).unwrap();
        let [web, db] = config.spaces.as_slice() else {
            panic!("two spaces");
        };
        assert_eq!((web.slots, web.allow.len()), (Some(64), 2));
        assert!(web.tls.is_some() && web.token_file.is_some());
        assert_eq!((db.slots, db.listen), (Some(SLOTS), None));
        assert_eq!((web.rate, db.rate), (Some(100_000_000), None));
        assert_eq!(db.objective, Objective::default());
        let shared =
            format!("space-budget = 72\n{GOOD}objective = {{ within-ms = 20, weight = 3 }}");
        let config = parse("test.toml", &shared, None).unwrap();
        let [web, db] = config.spaces.as_slice() else {
            panic!("two spaces");
        };
        assert_eq!(
            (config.space_budget, web.slots, db.slots),
            (Some(72), Some(64), None)
        );
        assert_eq!((db.objective.within_ms, db.objective.weight), (20, 3));
        assert_eq!((db.objective.percent, db.objective.class), (95, 0));
    }

    #[test]
    fn a_space_that_makes_no_sense_is_shown() {
        let complains = |from: &str, to: &str, parts: [&str; 2]| {
            let text = GOOD.replace(from, to);
            let error = parse("test.toml", &text, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        complains("slots = 64", "slots = 7", ["space.slots", "8 to"]);
        let objective = "objective = { percent = 100 }";
        complains(
            "slots = 64",
            objective,
            ["space.objective.percent", "1 to 99"],
        );
        for (key, value) in [("weight", 1001), ("class", 256)] {
            let objective = format!("objective = {{ {key} = {value} }}");
            let said = format!("a {key} of {value}");
            complains("slots = 64", &objective, [&said, "write"]);
        }
        let small = "\nspace-budget = 71\n[[space]]\nvm = \"web\"";
        complains(
            "\n[[space]]\nvm = \"web\"",
            small,
            ["budget of 71", "at least 8"],
        );
        complains(
            "vm = \"db\"",
            "vm = \"web\"",
            ["\"web\" is given twice", "line 3"],
        );
        complains(
            "\"::1\"",
            "\"here\"",
            ["space.allow", "`here` is not an address"],
        );
        complains(
            "key = \"/etc/key.pem\"\n",
            "",
            ["space.certificate", "`key`"],
        );
        complains("vm = \"db\"", "vm = \"d/b\"", ["space.vm", "d/b"]);
        let closed = "vm = \"db\"\nlisten = \"127.0.0.1:1\"";
        complains("vm = \"db\"", closed, ["no client may fetch", "`allow`"]);
        let twice = "vm = \"db\"\nallow = [\"::/0\"]\nlisten = \"127.0.0.1:8080\"";
        complains("vm = \"db\"", twice, ["given twice", "space.listen"]);
    }
}
