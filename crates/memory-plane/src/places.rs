//! The places of a space's clients, shared out by address.
//!
//! A client takes a place for each connection. An address may hold at most as many as are free (dynamic
//! thresholds, Choudhury and Hahne 1998): one alone may have half of all, and the next one still finds
//! half of the rest. So no address keeps the others out, and none is held back while there is room.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places that are left, and who has how many.
#[derive(Debug)]
struct Taken {
    free: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// All places.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Taken {
            free: count,
            by_address: HashMap::new(),
        })))
    }

    /// A place for a client with this address; none if its share is used up.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut taken = self.lock();
        let held = taken.by_address.get(&address).copied().unwrap_or(0);
        if held >= taken.free {
            return None;
        }
        taken.free -= 1;
        taken.by_address.insert(address, held + 1);
        drop(taken);
        let places = self.clone();
        Some(Place { places, address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.free += 1;
        if let Some(held) = taken.by_address.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: a host has a whole /64 of IPv6 (RFC 4291, 2.5.4).
fn network(address: IpAddr) -> IpAddr {
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

    fn all(places: &Places, address: &str) -> Vec<Place> {
        let address: IpAddr = address.parse().unwrap();
        std::iter::from_fn(|| places.take(address)).collect()
    }

    #[test]
    fn an_address_leaves_as_many_places_as_it_has() {
        let places = Places::new(2048);
        let greedy = all(&places, "192.0.2.1");
        assert_eq!(greedy.len(), 1024);
        // The same host, written as IPv6.
        assert!(all(&places, "::ffff:192.0.2.1").is_empty());
        let next = all(&places, "192.0.2.2");
        assert_eq!(next.len(), 512);
        drop(greedy);
        assert_eq!(all(&places, "192.0.2.3").len(), 768);
        drop(next);
        assert_eq!(places.lock().free, 2048);
        assert!(places.lock().by_address.is_empty());
    }

    #[test]
    fn a_host_has_one_share_of_its_ipv6_network() {
        let places = Places::new(100);
        let first = all(&places, "2001:db8::1");
        assert_eq!(first.len(), 50);
        assert!(all(&places, "2001:db8::2:1").is_empty());
        assert_eq!(all(&places, "2001:db8:0:1::1").len(), 25);
    }
}
