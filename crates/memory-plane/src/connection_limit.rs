//! Limits the connections of a space's clients, in total and per address.
//!
//! A client needs a permit for each connection. An address may have at most as many permits as are free (dynamic
//! thresholds, Choudhury and Hahne 1998): a single address gets half of all permits, and the next one half of the rest. So
//! no address can exhaust the permits, and an address is limited only while others need permits too.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Free permits, and open connections by address.
#[derive(Debug)]
struct State {
    free: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// All permits of a space. Clones refer to the same permits.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit(Arc<Mutex<State>>);

/// A permit for one connection. Dropping it returns the permit.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limit: ConnectionLimit,
    address: IpAddr,
}

impl ConnectionLimit {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: count,
            by_address: HashMap::new(),
        })))
    }

    /// Returns a permit for a client with this address, or `None` if the address has as many as are free.
    pub(crate) fn acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let address = address_key(address);
        let mut state = self.lock();
        let open = state.by_address.get(&address).copied().unwrap_or(0);
        if open >= state.free {
            return None;
        }
        state.free -= 1;
        state.by_address.insert(address, open + 1);
        drop(state);
        let limit = self.clone();
        Some(ConnectionPermit { limit, address })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.limit.lock();
        state.free += 1;
        if let Some(open) = state.by_address.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                state.by_address.remove(&self.address);
            }
        }
    }
}

/// Returns the key under which an address is counted: an IPv6 address by its /64 prefix, because a host has a whole /64
/// (RFC 4291, 2.5.4).
fn address_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire_all(limit: &ConnectionLimit, address: &str) -> Vec<ConnectionPermit> {
        let address: IpAddr = address.parse().unwrap();
        std::iter::from_fn(|| limit.acquire(address)).collect()
    }

    #[test]
    fn an_address_leaves_as_many_connections_free_as_it_has() {
        let limit = ConnectionLimit::new(2048);
        let greedy = acquire_all(&limit, "192.0.2.1");
        assert_eq!(greedy.len(), 1024);
        // The same host as an IPv4-mapped IPv6 address.
        assert!(acquire_all(&limit, "::ffff:192.0.2.1").is_empty());
        let next = acquire_all(&limit, "192.0.2.2");
        assert_eq!(next.len(), 512);
        drop(greedy);
        assert_eq!(acquire_all(&limit, "192.0.2.3").len(), 768);
        drop(next);
        assert_eq!(limit.lock().free, 2048);
        assert!(limit.lock().by_address.is_empty());
    }

    #[test]
    fn an_ipv6_prefix_of_64_bits_shares_one_limit() {
        let limit = ConnectionLimit::new(100);
        let first = acquire_all(&limit, "2001:db8::1");
        assert_eq!(first.len(), 50);
        assert!(acquire_all(&limit, "2001:db8::2:1").is_empty());
        assert_eq!(acquire_all(&limit, "2001:db8:0:1::1").len(), 25);
    }
}
