//! Vicinity's switch with few and with many FDB entries, and one NIC that sends to them.
//!
//! The switch learns at most 1,024 addresses of a guest, so many addresses need many ports. Both sizes of the table
//! are measured with the same ports and the same order of destinations; only the number of addresses behind each port
//! differs, and with it the part of the table that the look-ups read.

use std::path::Path;
use std::time::Duration;

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

use super::device_under_test::{SwitchKind, SwitchOptions};
use super::driver::{Driver, RING};
use super::frames::{SHORT, mac};
use super::generator::Flow;
use super::load_setup::LoadSetup;
use super::options::Options;

/// Ports that receive.
const RECEIVERS: usize = 98;

/// Addresses behind each receiver.
pub(super) const FEW_ADDRESSES: usize = 1;
pub(super) const MANY_ADDRESSES: usize = 1020;

/// Consecutive frames for one receiver.
const RUN: usize = 32;

/// Longest time until the switch has learned all addresses.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the number of FDB entries with `each` addresses at each receiver, including the sender's address.
pub(super) fn count(each: usize) -> u64 {
    (1 + RECEIVERS * each) as u64
}

/// Starts a switch, and waits until it has learned `each` addresses at each receiver.
pub(super) fn start(options: &Options, folder: &Path, each: usize) -> Result<LoadSetup> {
    let shape = SwitchOptions {
        ports: u16::try_from(RECEIVERS + 1).unwrap_or(u16::MAX),
        gso: false,
    };
    let name = format!("fdb-{each}");
    let (program, peer) = (&options.vicinity, SwitchKind::Vicinity);
    let mut setup = LoadSetup::start(peer, shape, SHORT, program, folder, &name)?;
    learn(&mut setup.drivers, each)?;
    interrupt::poll("the FDB to have all entries", LIMIT, || {
        Ok((setup.running.fdb_entries()? == Some(count(each))).then_some(()))
    })?;
    Ok(setup)
}

/// Flows from the first NIC to few addresses at each receiver, and to many.
pub(super) fn flows() -> [Flow; 2] {
    [FEW_ADDRESSES, MANY_ADDRESSES].map(|each| Flow {
        from: 0,
        to: destinations(each),
    })
}

/// Address `number` behind receiver `port`.
fn address(port: usize, number: usize) -> [u8; 6] {
    let [.., a, b] = port.to_be_bytes();
    let [.., c, d] = number.to_be_bytes();
    [0x06, 0, a, b, c, d]
}

/// Returns all destinations, in the order in which frames are sent to them. Both flows have the same number of
/// destinations; with few addresses they repeat.
fn destinations(each: usize) -> Vec<[u8; 6]> {
    let mut to = Vec::with_capacity(RECEIVERS * MANY_ADDRESSES.next_multiple_of(RUN));
    for first in (0..MANY_ADDRESSES).step_by(RUN) {
        for port in 1..=RECEIVERS {
            to.extend((first..first + RUN).map(|number| address(port, number % each)));
        }
    }
    to
}

/// Sends one frame from each address of every receiver to the first NIC, so that the switch learns the addresses.
fn learn(drivers: &mut [Driver], each: usize) -> Result<()> {
    let [first, others @ ..] = drivers else {
        return Err(Error::Host("a switch without ports".to_owned()));
    };
    first.send([0xff; 6], 0);
    wait_until_taken(first, None)?;
    for (port, driver) in (1..).zip(others) {
        for number in 0..each {
            if driver.room() == 0 {
                wait_until_taken(driver, Some(first))?;
            }
            driver.send_from(address(port, number), mac(0));
        }
        wait_until_taken(driver, Some(first))?;
    }
    Ok(())
}

/// Waits until the switch has taken the frames that a NIC sent, and takes received frames from the receiver during the
/// wait.
fn wait_until_taken(driver: &mut Driver, mut receiver: Option<&mut Driver>) -> Result<()> {
    driver.publish();
    interrupt::poll("frames to be taken", LIMIT, || {
        if let Some(receiver) = &mut receiver {
            receiver.receive(usize::from(RING), |_| ());
            receiver.publish();
        }
        Ok((driver.room() == usize::from(RING)).then_some(()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn few_and_many_have_the_same_order_of_receivers() {
        let (few, many) = (destinations(FEW_ADDRESSES), destinations(MANY_ADDRESSES));
        let port = |to: &[u8; 6]| (to[2], to[3]);
        assert!(few.iter().map(port).eq(many.iter().map(port)));
        let distinct = |list: &[[u8; 6]]| list.iter().collect::<HashSet<_>>().len();
        assert_eq!(distinct(&few), RECEIVERS);
        assert_eq!(distinct(&many), RECEIVERS * MANY_ADDRESSES);
    }
}
