//! Logs and reports MAC addresses that two ports use.

use crate::control::DuplicateMac;
use crate::fdb::Duplicate;
use crate::switch::Switch;

impl Switch {
    /// Logs each address that two ports use, once.
    pub(crate) fn log_duplicates(&self) {
        while let Some(duplicate) = self.table.new_duplicate() {
            self.log_duplicate(&duplicate);
        }
    }

    fn log_duplicate(&self, duplicate: &Duplicate) {
        let [Some(one), Some(other)] = duplicate.ports.map(|number| self.port(number)) else {
            // One port is gone: its VM was migrated to another host, and the address is still pinned.
            return;
        };
        tracing::warn!(
            mac = %duplicate.key.mac(),
            vlan = duplicate.key.vlan(),
            "two ports use one MAC address, so each loses frames of the other: {} and {}; give each VM its own \
                address. If one of them is an uplink, look for a VM with this address on other hosts, and for a \
                loop",
            one.name,
            other.name
        );
    }

    /// Returns the addresses of a port that another attached port uses too.
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
