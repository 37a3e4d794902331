//! A device on the test's own thread, with guests.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use front_end::{VsockDevice, VsockOptions, Wire};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::handover::{Key, StoredSetting};
use vsock::connection_list::ConnectionList;
use vsock::event::Event;
use vsock::guest::GuestConfig;
use vsock::header::{Header, Operation, SocketType};
use vsock::plane::Plane;
use vsock::policy::Rules;

/// What the supervisor keeps of a guest.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) settings: BTreeMap<Key, (Vec<u8>, Option<OwnedFd>)>,
    pub(crate) is_answering: bool,
    pub(crate) ended: Option<String>,
}

pub(crate) struct Rig {
    pub(crate) plane: Plane,
    pub(crate) stores: Vec<Store>,
    configs: Vec<GuestConfig>,
    list: OwnedFd,
    /// Requested connections to host programs: guest, port, number of the request.
    pub(crate) connects: Vec<(usize, u32, u64)>,
}

/// The CID of a guest in these tests.
pub(crate) fn cid(guest: usize) -> u32 {
    guest as u32 + 3
}

impl Rig {
    /// Creates a device for guests that may all connect to each other, on any port but 1.
    pub(crate) fn new(guests: usize) -> Self {
        let configs = (0..guests).map(|guest| GuestConfig {
            name: format!("vm{guest}"),
            cid: cid(guest),
            rules: Rules {
                groups: vec!["all".to_owned()],
                ports: Some(vec![2..=u32::MAX]),
            },
        });
        Self::of(configs.collect())
    }

    pub(crate) fn of(configs: Vec<GuestConfig>) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let list = memfd_create("connections", flags).unwrap();
        ftruncate(&list, ConnectionList::bytes(configs.len())).unwrap();
        vhost::sigbus::install().unwrap();
        Self {
            plane: plane(&configs, &list),
            stores: configs.iter().map(|_| Store::default()).collect(),
            configs,
            list,
            connects: Vec::new(),
        }
    }

    /// Attaches a front-end, without a driver.
    pub(crate) fn connect(&mut self, guest: usize) -> Wire {
        let (wire, theirs) = Wire::pair();
        self.stores[guest] = Store {
            socket: Some(theirs.try_clone().unwrap()),
            ..Store::default()
        };
        self.plane.attach(guest, theirs, Vec::new());
        wire
    }

    /// Attaches a guest with a driver that has posted all its receive buffers.
    pub(crate) fn boot(&mut self, guest: usize) -> VsockDevice {
        self.boot_with(guest, VsockOptions::default(), usize::MAX)
    }

    pub(crate) fn boot_with(
        &mut self,
        guest: usize,
        options: VsockOptions,
        buffers: usize,
    ) -> VsockDevice {
        let wire = self.connect(guest);
        let mut device = VsockDevice::new(wire, options);
        let told = device.start(|| self.turn());
        assert_eq!(
            told,
            u64::from(cid(guest)),
            "5.10.4: the CID in the configuration space"
        );
        device.post(buffers);
        self.turn();
        device
    }

    /// Lets the device do all that it can do now.
    pub(crate) fn turn(&mut self) {
        let mut idle = 0;
        while idle < 2 {
            self.plane.wait(true).unwrap();
            let mut busy = self.plane.work();
            while let Some((event, descriptor)) = self.plane.next_event() {
                busy = true;
                self.store(event, descriptor);
            }
            self.plane.execute_pending();
            idle = if busy { 0 } else { idle + 1 };
        }
    }

    fn store(&mut self, event: Event, descriptor: Option<OwnedFd>) {
        match event {
            Event::Keep {
                guest,
                key,
                payload,
            } => {
                self.stores[guest]
                    .settings
                    .insert(key, (payload, descriptor));
            }
            Event::Forget { guest, key } => drop(self.stores[guest].settings.remove(&key)),
            Event::ForgetAll { guest, request } => {
                self.stores[guest]
                    .settings
                    .retain(|key, _| key.0 != request);
            }
            Event::Answering { guest } => self.stores[guest].is_answering = true,
            Event::Answered { guest } => self.stores[guest].is_answering = false,
            Event::Connect {
                guest,
                port,
                request,
            } => self.connects.push((guest, port, request)),
            Event::Ended { guest, reason, .. } => {
                self.stores[guest] = Store {
                    ended: Some(reason),
                    ..Store::default()
                };
            }
        }
    }

    /// Replaces the process by another one, which continues with the front-ends.
    pub(crate) fn restart(&mut self) {
        let next = plane(&self.configs, &self.list);
        // A killed process does not shut its sockets down.
        std::mem::forget(std::mem::replace(&mut self.plane, next));
        for (guest, store) in self.stores.iter().enumerate() {
            let Some(socket) = &store.socket else {
                continue;
            };
            assert!(!store.is_answering);
            let stored = store
                .settings
                .iter()
                .map(|(key, (payload, descriptor))| StoredSetting {
                    key: *key,
                    payload: payload.clone(),
                    descriptor: descriptor.as_ref().map(|fd| fd.try_clone().unwrap()),
                });
            let socket = socket.try_clone().unwrap();
            self.plane.attach(guest, socket, stored.collect());
        }
        self.turn();
    }
}

fn plane(configs: &[GuestConfig], list: &OwnedFd) -> Plane {
    let list = ConnectionList::take(list.as_fd()).unwrap();
    Plane::new(configs.to_vec(), list).unwrap()
}

/// Returns a header of a stream's packet from one guest's port to another's.
pub(crate) fn header(op: Operation, from: (usize, u32), to: (usize, u32), len: u32) -> Header {
    Header {
        src_cid: cid(from.0).into(),
        dst_cid: cid(to.0).into(),
        src_port: from.1,
        dst_port: to.1,
        len,
        kind: SocketType::Stream as u16,
        op: op as u16,
        flags: 0,
        buf_alloc: 1 << 18,
        fwd_cnt: 0,
    }
}

/// Sends a packet; the ring must have room.
pub(crate) fn send(device: &mut VsockDevice, header: &Header, payload: &[u8]) {
    assert!(device.send(&header.to_bytes(), payload), "the ring is full");
}

/// Returns all received pieces.
pub(crate) fn received(device: &mut VsockDevice) -> Vec<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((header, payload)) = device.receive() {
        let header = Header::from_bytes(&header);
        assert_eq!(header.len as usize, payload.len());
        all.push((header, payload));
    }
    device.post(usize::MAX);
    all
}

/// Returns the operations of all received pieces.
pub(crate) fn operations(device: &mut VsockDevice) -> Vec<Operation> {
    let all = received(device).into_iter();
    all.map(|(header, _)| Operation::from_number(header.op).unwrap())
        .collect()
}

/// Connects `from` to `to`, and checks what both drivers see.
pub(crate) fn establish(
    rig: &mut Rig,
    (client, from): (&mut VsockDevice, (usize, u32)),
    (server, to): (&mut VsockDevice, (usize, u32)),
) {
    send(client, &header(Operation::Request, from, to, 0), &[]);
    rig.turn();
    assert_eq!(operations(server), [Operation::Request]);
    send(server, &header(Operation::Response, to, from, 0), &[]);
    rig.turn();
    assert_eq!(operations(client), [Operation::Response]);
}
