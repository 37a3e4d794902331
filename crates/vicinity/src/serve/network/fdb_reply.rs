//! The list of a network's FDB entries, which the data plane sends page by page.

use std::time::{SystemTime, UNIX_EPOCH};

use switch::control::{FdbEntry, Order, PortId};
use switch::limits::MAX_FDB_ENTRIES;
use tokio::sync::oneshot;

use super::Network;
use super::fdb_list::FdbList;
use super::port::PortKind;
use crate::status::{FdbEntryStatus, FdbOrigin, Kind};

impl Network {
    /// Adds a client that waits for the list, and requests the list unless it is on its way.
    pub(super) fn list_fdb(&mut self, waiter: oneshot::Sender<Vec<FdbEntryStatus>>) {
        if !self.lifecycle.is_up() {
            return;
        }
        self.fdb_list.waiters.push(waiter);
        if self.fdb_list.waiters.len() == 1 {
            self.request_page(0);
        }
    }

    fn request_page(&mut self, from: u32) {
        self.fdb_list.from = from;
        self.plane.orders.push(Order::ListFdb { from }, None);
    }

    /// Takes a page.
    pub(super) fn fdb_entries(&mut self, entries: Vec<FdbEntry>, next: Option<u32>) {
        let list = &mut self.fdb_list;
        if list.waiters.is_empty() {
            return;
        }
        let room = MAX_FDB_ENTRIES.saturating_sub(list.entries.len());
        list.entries.extend(entries.into_iter().take(room));
        // A data plane that a guest has taken over must not keep this list growing.
        match next.filter(|next| *next > list.from && room > 0) {
            Some(next) => self.request_page(next),
            None => self.send_list(),
        }
    }

    fn send_list(&mut self) {
        let FdbList {
            waiters, entries, ..
        } = std::mem::take(&mut self.fdb_list);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let status = entries.iter().filter_map(|entry| self.entry(entry, now));
        let mut status: Vec<_> = status.collect();
        status.sort_by(|a, b| {
            let place = |it: &FdbEntryStatus| (it.vlan, it.mac.octets());
            a.vm.cmp(&b.vm).then_with(|| place(a).cmp(&place(b)))
        });
        // An entry that changed its slot between two pages is there twice.
        status.dedup_by(|a, b| (&a.vm, a.vlan, a.mac) == (&b.vm, b.vlan, b.mac));
        for waiter in waiters {
            // A client that closed its connection needs no answer.
            drop(waiter.send(status.clone()));
        }
    }

    /// Returns an entry with the name of its port; `None` if the port is gone.
    fn entry(&self, entry: &FdbEntry, now: u64) -> Option<FdbEntryStatus> {
        let port = self.ports.get(&PortId(entry.port))?;
        let (origin, idle_seconds) = match entry.pinned {
            true => (FdbOrigin::Pinned, None),
            false => (FdbOrigin::Learnt, Some(entry.idle)),
        };
        Some(FdbEntryStatus {
            mac: entry.mac,
            vlan: entry.vlan,
            vm: port.name.clone(),
            kind: match port.kind {
                PortKind::Uplink(_) => Kind::Uplink,
                _ => Kind::Vm,
            },
            origin,
            since: now.saturating_sub(entry.age.into()),
            idle_seconds,
        })
    }
}
