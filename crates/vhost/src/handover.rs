//! What another process needs to continue with a device whose front-end does not connect again.
//!
//! QEMU connects some devices only once (all but network cards and disks). Their owner keeps the socket, and
//! for each message the settings in it ([`settings`]), where they survive this process. The next process
//! gets both, and [restores](crate::backend::Backend::restore) the device. Only the last setting of each key
//! counts.
//!
//! The owner must keep the settings of a message before it executes the message: the front-end knows by
//! the reply that its message was executed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::channel::{Descriptors, Message};
use crate::fault::{Fault, ProtocolFault};
use crate::memory::RegionInfo;
use crate::message::{Header, Request, RingAddresses, decode};
use crate::raw::ForeignFd;

/// What a setting is about: the number of the message that makes it alone, and a ring's number or a
/// region's guest-physical address.
pub type Key = (u32, u64);

/// A setting, as the payload of the message that makes it alone, and the descriptor of that message.
#[derive(Debug)]
pub struct StoredSetting {
    /// What it is about.
    pub key: Key,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptor.
    pub descriptor: Option<OwnedFd>,
}

/// A change of the settings.
#[derive(Debug)]
pub enum Setting {
    /// The setting has this value now.
    Set(StoredSetting),
    /// There is no such setting any more.
    Remove(Key),
    /// There is no setting with this message number any more.
    RemoveAll(u32),
}

/// Numbers of the messages that make settings, in the order in which they are restored: a ring can
/// start once its memory and addresses are known.
const ORDER: [u32; 8] = [
    SET_FEATURES,
    SET_PROTOCOL_FEATURES,
    ADD_MEM_REG,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_ENABLE,
    SET_VRING_KICK,
    SET_VRING_CALL,
];
const SET_FEATURES: u32 = 2;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const ADD_MEM_REG: u32 = 37;

/// The bit of a kick or call message that carries no descriptor.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Returns the changes of the settings that a message makes.
///
/// # Errors
/// The process is out of descriptors.
pub fn settings(message: &Message) -> io::Result<Vec<Setting>> {
    let descriptor = |index: usize| {
        let descriptor = message.descriptors.get(index);
        // syscalls: fcntl
        let same = descriptor.map(|descriptor| descriptor.as_fd().try_clone_to_owned());
        same.transpose()
    };
    let set = |key: Key, payload: Vec<u8>, descriptor| {
        Setting::Set(StoredSetting {
            key,
            payload,
            descriptor,
        })
    };
    let index = |ring: usize| u64::try_from(ring).unwrap_or(u64::MAX);
    let stop = |ring: usize| {
        [SET_VRING_KICK, SET_VRING_CALL].map(|request| Setting::Remove((request, index(ring))))
    };
    Ok(match &message.request {
        Request::SetFeatures(features) => {
            vec![set((SET_FEATURES, 0), number(*features), None)]
        }
        Request::SetProtocolFeatures(features) => {
            vec![set((SET_PROTOCOL_FEATURES, 0), number(*features), None)]
        }
        Request::SetMemTable(regions) => {
            let mut all = vec![Setting::RemoveAll(ADD_MEM_REG)];
            for (place, region) in regions.iter().enumerate() {
                let key = (ADD_MEM_REG, region.guest);
                all.push(set(key, memory_region(region), descriptor(place)?));
            }
            all
        }
        Request::AddMemReg(region) => {
            let key = (ADD_MEM_REG, region.guest);
            vec![set(key, memory_region(region), descriptor(0)?)]
        }
        Request::RemMemReg(region) => vec![Setting::Remove((ADD_MEM_REG, region.guest))],
        Request::SetVringNum(ring, size) => {
            vec![set(
                (SET_VRING_NUM, index(*ring)),
                state(*ring, *size),
                None,
            )]
        }
        Request::SetVringAddr(ring, addresses) => {
            let key = (SET_VRING_ADDR, index(*ring));
            vec![set(key, ring_addresses(*ring, addresses), None)]
        }
        Request::SetVringEnable(ring, enabled) => {
            let key = (SET_VRING_ENABLE, index(*ring));
            vec![set(key, state(*ring, u32::from(*enabled)), None)]
        }
        Request::SetVringKick(ring) => {
            let descriptor = descriptor(0)?;
            let key = (SET_VRING_KICK, index(*ring));
            vec![set(key, event(*ring, descriptor.is_some()), descriptor)]
        }
        Request::SetVringCall(ring) => {
            let descriptor = descriptor(0)?;
            let key = (SET_VRING_CALL, index(*ring));
            vec![set(key, event(*ring, descriptor.is_some()), descriptor)]
        }
        Request::GetVringBase(ring) => stop(*ring).into(),
        Request::ResetOwner | Request::ResetDevice | Request::SetStatus(0) => {
            vec![
                Setting::RemoveAll(SET_VRING_KICK),
                Setting::RemoveAll(SET_VRING_CALL),
            ]
        }
        _ => Vec::new(),
    })
}

impl Message {
    /// Returns whether the front-end waits for a reply to this message, or may wait for one.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        let asks = matches!(
            self.request,
            Request::GetFeatures
                | Request::GetProtocolFeatures
                | Request::GetQueueNum
                | Request::GetMaxMemSlots
                | Request::GetVringBase(_)
                | Request::GetStatus
                | Request::GetConfig { .. }
                | Request::SetLogBase { .. }
        );
        asks || self.header.needs_reply()
    }
}

/// Returns the messages that make these settings, in the order in which a device accepts them.
pub(crate) fn messages(
    stored: impl IntoIterator<Item = StoredSetting>,
) -> Result<Vec<Message>, Fault> {
    let mut messages = Vec::new();
    for StoredSetting {
        key: (request, _),
        payload,
        descriptor,
    } in stored
    {
        let Some(place) = ORDER.iter().position(|known| *known == request) else {
            return Err(ProtocolFault::Unknown(request).into());
        };
        let header = Header {
            request,
            flags: 0,
            size: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        };
        let descriptors: Descriptors = descriptor.map(ForeignFd::from).into_iter().collect();
        let request = decode(&header, &payload, descriptors.len())?;
        let message = Message {
            header,
            request,
            descriptors,
        };
        messages.push((place, message));
    }
    messages.sort_by_key(|(place, _)| *place);
    Ok(messages.into_iter().map(|(_, message)| message).collect())
}

fn number(value: u64) -> Vec<u8> {
    value.to_ne_bytes().into()
}

fn state(ring: usize, value: u32) -> Vec<u8> {
    let ring = u32::try_from(ring).unwrap_or(u32::MAX);
    [ring.to_ne_bytes(), value.to_ne_bytes()].concat()
}

fn event(ring: usize, has_descriptor: bool) -> Vec<u8> {
    let ring = u64::try_from(ring).unwrap_or(u64::MAX);
    number(if has_descriptor {
        ring
    } else {
        ring | NO_DESCRIPTOR
    })
}

fn ring_addresses(ring: usize, addresses: &RingAddresses) -> Vec<u8> {
    let log = addresses.log.unwrap_or(0);
    let mut payload = state(ring, u32::from(addresses.log.is_some()));
    for word in [
        addresses.descriptors,
        addresses.used,
        addresses.available,
        log,
    ] {
        payload.extend(word.to_ne_bytes());
    }
    payload
}

fn memory_region(region: &RegionInfo) -> Vec<u8> {
    let words = [0, region.guest, region.size, region.user, region.offset];
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}
