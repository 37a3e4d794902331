//! What an event of the epoll set is about.

use rustix::event::epoll::EventData;

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKey {
    /// The supervisor's socket.
    Control,
    /// The socket of this guest's front-end.
    Socket(usize),
    /// The kick of a ring: the guest, and the ring's number.
    Kick(usize, usize),
    /// The socket on which host programs connect to this guest.
    Listener(usize),
    /// The socket of a host program: the number of its stream.
    Stream(u64),
}

const CONTROL: u64 = 0;
const SOCKET: u64 = 1;
const KICK: u64 = 2;
const LISTENER: u64 = 3;
const STREAM: u64 = 4;

impl EventKey {
    /// Encodes the key: the kind in the lowest byte, then a byte for the ring, then the guest.
    pub(crate) fn data(self) -> EventData {
        let pack = |kind, ring: usize, guest: usize| {
            EventData::new_u64(kind | (ring as u64 & 0xff) << 8 | (guest as u64) << 16)
        };
        match self {
            Self::Control => pack(CONTROL, 0, 0),
            Self::Socket(guest) => pack(SOCKET, 0, guest),
            Self::Kick(guest, ring) => pack(KICK, ring, guest),
            Self::Listener(guest) => pack(LISTENER, 0, guest),
            // A process does not live to see 2^48 streams.
            Self::Stream(number) => EventData::new_u64(STREAM | number << 16),
        }
    }

    /// Decodes a key.
    pub(crate) fn from_data(data: EventData) -> Self {
        let data = data.u64();
        let field = |shift: u32, mask: u64| usize::try_from(data >> shift & mask).unwrap_or(0);
        match data & 0xff {
            SOCKET => Self::Socket(field(16, u64::MAX)),
            LISTENER => Self::Listener(field(16, u64::MAX)),
            STREAM => Self::Stream(data >> 16),
            KICK => Self::Kick(field(16, u64::MAX), field(8, 0xff)),
            _ => Self::Control,
        }
    }
}
