//! Whether this VM has a packet filter: AF_VSOCK connections would pass it by.
//!
//! The agent does not interpret rules. It looks for a chain of nftables that is attached to the network stack and has
//! rules or refuses by default, and for a table of iptables' older kernel part. It does not see programs of eBPF, XDP
//! and traffic control.

use std::fs;

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt::{self, Timeout},
};
use std::time::Duration;

/// Families of nftables (`NFPROTO_INET`, `NFPROTO_IPV4`, `NFPROTO_NETDEV`) that see IPv4 packets of a host.
const FAMILIES: [u8; 3] = [1, 2, 5];

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN`, and the type of the answers, `NFT_MSG_NEWCHAIN`.
const GET_CHAIN: u16 = 10 << 8 | 4;
const NEW_CHAIN: u16 = 10 << 8 | 3;

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;

/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Attributes of a chain: `NFTA_CHAIN_HOOK`, `NFTA_CHAIN_POLICY`, `NFTA_CHAIN_USE`.
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const USE: u16 = 6;

/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;

/// Bytes of the headers of netlink and of nfnetlink.
const HEADER: usize = 16;
const FAMILY: usize = 4;

/// Bytes of a request.
const LENGTH: u32 = 20;
const _: () = assert!(LENGTH as usize == HEADER + FAMILY);

/// Returns whether a packet filter could refuse packets. What cannot be read counts as one.
pub(super) fn is_present() -> bool {
    has_iptables() || has_nftables().unwrap_or(true)
}

fn has_iptables() -> bool {
    // Kernels without the older part have no such file.
    fs::read("/proc/net/ip_tables_names").is_ok_and(|names| !names.is_empty())
}

fn has_nftables() -> Result<bool, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = match socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        Some(NETFILTER),
    ) {
        // A kernel without netfilter.
        Err(Errno::PROTONOSUPPORT) => return Ok(false),
        socket => socket?,
    };
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1)))?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (count, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let bytes = buffer.get(..count).unwrap_or_default();
        match read(bytes) {
            Answer::Filter => return Ok(true),
            Answer::More => {}
            Answer::End => return Ok(false),
        }
    }
}

/// Requests all chains of all families.
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(GET_CHAIN.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    // Sequence, port, and the family: any.
    bytes.resize(HEADER + FAMILY, 0);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Filter,
    More,
    End,
}

/// Reads what the kernel sent at once.
fn read(mut bytes: &[u8]) -> Answer {
    while let Some((kind, body, rest)) = message(bytes) {
        match kind {
            DONE => return Answer::End,
            ERROR => {
                // Without nftables there is no such subsystem (EINVAL).
                let code = body.first_chunk().map(|code| i32::from_ne_bytes(*code));
                return match code {
                    Some(code) if code == -Errno::INVAL.raw_os_error() => Answer::End,
                    _ => Answer::Filter,
                };
            }
            NEW_CHAIN if filters(body) => return Answer::Filter,
            _ => bytes = rest,
        }
    }
    Answer::More
}

/// Splits a message of netlink off: its type and its body, and the rest.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

/// Returns whether a chain is attached, and does anything.
fn filters(body: &[u8]) -> bool {
    let Some((family, attributes)) = body.split_at_checked(FAMILY) else {
        return true;
    };
    if !family
        .first()
        .is_some_and(|family| FAMILIES.contains(family))
    {
        return false;
    }
    let (mut is_attached, mut policy, mut rules) = (false, ACCEPT, 0);
    let mut rest = attributes;
    while let Some((kind, value, after)) = attribute(rest) {
        let number = value
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        match kind {
            HOOK => is_attached = true,
            POLICY => policy = number,
            USE => rules = number,
            _ => {}
        }
        rest = after;
    }
    is_attached && (policy != ACCEPT || rules > 0)
}

/// Splits an attribute off: its type, its value, and the rest.
fn attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & 0x3fff;
    let value = bytes.get(4..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
        bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }

    fn chain(family: u8, hook: bool, policy: u32, rules: u32) -> Vec<u8> {
        let mut body = vec![family, 0, 0, 0];
        with_attribute(&mut body, 3, b"input\0");
        if hook {
            with_attribute(&mut body, HOOK | 0x8000, &[0; 8]);
            with_attribute(&mut body, POLICY, &policy.to_be_bytes());
        }
        with_attribute(&mut body, USE, &rules.to_be_bytes());
        wrap(NEW_CHAIN, &body)
    }

    fn wrap(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADER + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn chains_that_do_something_are_found() {
        for (chain, answer) in [
            (chain(2, true, ACCEPT, 0), Answer::More),
            (chain(2, true, 0, 0), Answer::Filter),
            (chain(1, true, ACCEPT, 1), Answer::Filter),
            (chain(5, true, ACCEPT, 1), Answer::Filter),
            (chain(1, false, 0, 7), Answer::More),
            (chain(10, true, 0, 7), Answer::More),
        ] {
            let both = [chain.clone(), wrap(DONE, &[0; 4])].concat();
            assert_eq!(read(&chain), answer);
            assert_eq!(read(&both) == Answer::Filter, answer == Answer::Filter);
        }
    }

    #[test]
    fn a_kernel_without_nftables_has_no_filter_and_other_errors_count_as_one() {
        let error = |code: i32| read(&wrap(ERROR, &code.to_ne_bytes()));
        assert_eq!(error(-22), Answer::End);
        assert_eq!(error(-1), Answer::Filter);
    }
}
