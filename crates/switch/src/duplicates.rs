//! MAC addresses that two ports use: told to whom it concerns.

use crate::control::DuplicateMac;
use crate::fdb::Duplicate;
use crate::switch::Switch;

impl Switch {
    /// Log the addresses that have come to have two owners, each once.
    pub(crate) fn log_duplicates(&self) {
        while let Some(duplicate) = self.table.new_duplicate() {
            self.log_duplicate(&duplicate);
        }
    }

    fn log_duplicate(&self, duplicate: &Duplicate) {
        let [Some(one), Some(other)] = duplicate.ports.map(|number| self.port(number)) else {
            // Its VM is not here: it has moved to another host, and a pin stayed.
            return;
        };
        tracing::warn!(
            mac = %duplicate.key.mac(),
            vlan = duplicate.key.vlan(),
            "two ports use one MAC address, and lose each other's frames: {} and {}; give each VM \
             an address of its own. If one of them is an uplink, look for a VM of this address on \
             other hosts, and for a loop",
            one.name,
            other.name
        );
    }

    /// The addresses a port uses that another one, which is there, uses too.
    pub(crate) fn duplicates_of(&self, number: u16) -> Vec<DuplicateMac> {
        let all = self.table.duplicates(self.seconds).into_iter();
        all.filter_map(|duplicate| {
            let port = duplicate.other(number)?;
            self.port(port)?;
            Some(DuplicateMac {
                mac: duplicate.key.mac(),
                vlan: duplicate.key.vlan(),
                port,
                moves: duplicate.moves,
            })
        })
        .collect()
    }
}
