//! Our switch with few and with many residents, spoken to by one NIC.
//!
//! A guest may teach the switch 1,024 addresses, so many addresses need many ports. Both tables
//! are measured with the same ports and the same order of destinations; only the number of
//! addresses behind each port differs, and with it how much of the table is walked.

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
pub(super) const FEW: usize = 1;
pub(super) const MANY: usize = 1020;

/// Frames for one receiver before the next has its turn.
const RUN: usize = 32;

/// How long the switch may take to know all addresses.
const LIMIT: Duration = Duration::from_secs(60);

/// Residents with so many addresses at each receiver, the sender included.
pub(super) fn count(each: usize) -> u64 {
    (1 + RECEIVERS * each) as u64
}

/// Starts a switch that knows `each` addresses at each receiver.
pub(super) fn start(options: &Options, folder: &Path, each: usize) -> Result<LoadSetup> {
    let shape = SwitchOptions {
        ports: u16::try_from(RECEIVERS + 1).unwrap_or(u16::MAX),
        gso: false,
    };
    let name = format!("residents-{each}");
    let (program, peer) = (&options.vicinity, SwitchKind::Vicinity);
    let mut setup = LoadSetup::start(peer, shape, SHORT, program, folder, &name)?;
    teach(&mut setup.drivers, each)?;
    interrupt::poll("residents to be known", LIMIT, || {
        Ok((setup.running.fdb_entries()? == Some(count(each))).then_some(()))
    })?;
    Ok(setup)
}

/// From the first NIC to few addresses at each receiver, and to many.
pub(super) fn flows() -> [Flow; 2] {
    [FEW, MANY].map(|each| Flow {
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

/// All destinations, in the order they are spoken to: as many entries however few addresses
/// there are.
fn destinations(each: usize) -> Vec<[u8; 6]> {
    let mut to = Vec::with_capacity(RECEIVERS * MANY.next_multiple_of(RUN));
    for first in (0..MANY).step_by(RUN) {
        for port in 1..=RECEIVERS {
            to.extend((first..first + RUN).map(|number| address(port, number % each)));
        }
    }
    to
}

/// Have every receiver send one frame from each of its addresses to the first NIC.
fn teach(drivers: &mut [Driver], each: usize) -> Result<()> {
    let [first, others @ ..] = drivers else {
        return Err(Error::Host("a switch without ports".to_owned()));
    };
    first.send([0xff; 6], 0);
    settle(first, None)?;
    for (port, driver) in (1..).zip(others) {
        for number in 0..each {
            if driver.room() == 0 {
                settle(driver, Some(first))?;
            }
            driver.send_from(address(port, number), mac(0));
        }
        settle(driver, Some(first))?;
    }
    Ok(())
}

/// Waits until the switch has taken what a NIC sent, and empty the receiver meanwhile.
fn settle(driver: &mut Driver, mut receiver: Option<&mut Driver>) -> Result<()> {
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
        let (few, many) = (destinations(FEW), destinations(MANY));
        let port = |to: &[u8; 6]| (to[2], to[3]);
        assert!(few.iter().map(port).eq(many.iter().map(port)));
        let distinct = |list: &[[u8; 6]]| list.iter().collect::<HashSet<_>>().len();
        assert_eq!(distinct(&few), RECEIVERS);
        assert_eq!(distinct(&many), RECEIVERS * MANY);
    }
}
