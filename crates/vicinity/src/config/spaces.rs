//! The memory plane's spaces.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::check::{Unique, absolute, named};
use super::complaint::Mistake;
use super::file;

/// The folder of the spaces' sockets.
pub(crate) const FOLDER: &str = "space";

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: u32 = 256 << 10;

/// Slots unless said otherwise: 64 MiB.
const SLOTS: u32 = 256;

/// Fewest slots: the largest write of a guest takes five, and writes must fit.
const MIN_SLOTS: u32 = 8;

/// Most slots: 256 GiB.
const MAX_SLOTS: u32 = 1 << 20;

/// Most spaces of one daemon: each has a process of its own.
const MAX_SPACES: usize = 64;

/// Most networks that a space lists.
const MAX_ALLOWED: usize = 64;

/// A space of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Space {
    /// A valid name.
    pub(crate) vm: String,
    /// How many slots it has.
    pub(crate) slots: u32,
    /// Where clients fetch; nowhere unless given.
    pub(crate) listen: Option<SocketAddr>,
    /// Who may: clients with these addresses.
    pub(crate) allow: Vec<IpNet>,
    /// And those that show what is in this file.
    pub(crate) token_file: Option<PathBuf>,
    /// The files of certificate and key; without, there is no TLS.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
}

/// Check the `[[space]]` tables.
pub(super) fn check(text: &str, spaces: &[Spanned<file::Space>]) -> Result<Vec<Space>, Mistake> {
    if let Some(extra) = spaces.get(MAX_SPACES) {
        let message = format!("more than {MAX_SPACES} spaces");
        return Err(Mistake::new(extra.span(), message, "remove some"));
    }
    let mut vms = Unique::new(text, "space of VM");
    let mut places = Unique::new(text, "address to listen on");
    let check = |written: &Spanned<file::Space>| {
        let file::Space { vm, listen, .. } = written.get_ref();
        vms.take(vm.get_ref().clone(), vm.span())?;
        if let Some(listen) = listen {
            places.take(*listen.get_ref(), listen.span())?;
        }
        space(written)
    };
    spaces.iter().map(check).collect()
}

fn space(written: &Spanned<file::Space>) -> Result<Space, Mistake> {
    let space = written.get_ref();
    named(&space.vm)?;
    let slots = space.slots.as_ref().map_or(Ok(SLOTS), slots)?;
    let listen = space.listen.as_ref().map(|listen| *listen.get_ref());
    let allow = space.allow.as_deref().unwrap_or_default();
    if let Some(extra) = allow.get(MAX_ALLOWED) {
        let message = format!("a space lists at most {MAX_ALLOWED} networks");
        return Err(Mistake::new(extra.span(), message, "join some of them"));
    }
    let allow: Vec<_> = allow.iter().map(net).collect::<Result<_, _>>()?;
    let token_file = space.token_file.as_ref().map(absolute).transpose()?;
    if let (Some(listen), true) = (&space.listen, allow.is_empty() && token_file.is_none()) {
        let help = "list networks in `allow`, or give a `token-file`; all may fetch with \
                    `allow = [\"0.0.0.0/0\", \"::/0\"]`";
        let message = "nobody may fetch from this space";
        return Err(Mistake::new(listen.span(), message, help));
    }
    let tls = match (&space.certificate, &space.key) {
        (Some(certificate), Some(key)) => Some((absolute(certificate)?, absolute(key)?)),
        (None, None) => None,
        (Some(lonely), None) | (None, Some(lonely)) => {
            let help = "TLS needs both `certificate` and `key`";
            return Err(Mistake::new(lonely.span(), "half of what TLS needs", help));
        }
    };
    Ok(Space {
        vm: space.vm.get_ref().clone(),
        slots,
        listen,
        allow,
        token_file,
        tls,
    })
}

fn slots(written: &Spanned<i64>) -> Result<u32, Mistake> {
    let slots = u32::try_from(*written.get_ref()).ok();
    let slots = slots.filter(|slots| (MIN_SLOTS..=MAX_SLOTS).contains(slots));
    slots.ok_or_else(|| {
        let message = format!("a space of {} slots", written.get_ref());
        let help = format!(
            "it has {MIN_SLOTS} to {MAX_SLOTS}, of {} KiB",
            SLOT_BYTES >> 10
        );
        Mistake::new(written.span(), message, help)
    })
}

/// A network, or a single address.
fn net(written: &Spanned<String>) -> Result<IpNet, Mistake> {
    let text = written.get_ref();
    let net = text.parse().ok();
    let net = net.or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)));
    net.ok_or_else(|| {
        let message = format!("`{}` is no address", text.escape_debug());
        let help = "write an IP address, or a network like \"10.0.0.0/8\"";
        Mistake::new(written.span(), message, help)
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const GOOD: &str = "
[[space]]
vm = \"web\"
slots = 64
listen = \"127.0.0.1:8080\"
allow = [\"10.0.0.0/8\", \"::1\"]
token-file = \"/etc/token\"
certificate = \"/etc/cert.pem\"
key = \"/etc/key.pem\"
[[space]]
vm = \"db\"
";

    #[test]
    fn a_space_is_read() {
        let config = parse("test.toml", GOOD, None).unwrap();
        let [web, db] = config.spaces.as_slice() else {
            panic!("two spaces");
        };
        assert_eq!((web.slots, web.allow.len()), (64, 2));
        assert!(web.tls.is_some() && web.token_file.is_some());
        assert_eq!((db.slots, db.listen), (SLOTS, None));
    }

    #[test]
    fn a_space_that_makes_no_sense_is_shown() {
        let complains = |from: &str, to: &str, parts: [&str; 2]| {
            let text = GOOD.replace(from, to);
            let error = parse("test.toml", &text, None).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        complains("slots = 64", "slots = 7", ["space.slots", "8 to"]);
        complains(
            "vm = \"db\"",
            "vm = \"web\"",
            ["\"web\" is given twice", "line 3"],
        );
        complains(
            "\"::1\"",
            "\"here\"",
            ["space.allow", "`here` is no address"],
        );
        complains(
            "key = \"/etc/key.pem\"\n",
            "",
            ["space.certificate", "`key`"],
        );
        complains("vm = \"db\"", "vm = \"d/b\"", ["space.vm", "d/b"]);
        let closed = "vm = \"db\"\nlisten = \"127.0.0.1:1\"";
        complains("vm = \"db\"", closed, ["nobody may fetch", "`allow`"]);
        let twice = "vm = \"db\"\nallow = [\"::/0\"]\nlisten = \"127.0.0.1:8080\"";
        complains("vm = \"db\"", twice, ["given twice", "space.listen"]);
    }
}
