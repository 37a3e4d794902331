//! The source of an epoll event, encoded in the event's 64 bits of user data (compare mio's `Token`).

use rustix::event::epoll::EventData;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKey {
    /// The supervisor.
    Control,
    /// A front-end's socket.
    Socket(u16),
    /// A ring's kick descriptor: port and ring.
    Kick(u16, usize),
    /// An uplink's tap.
    Tap(u16),
    /// Another worker.
    Wake,
}

impl EventKey {
    /// Encodes the key as event data: kind, ring, port.
    #[must_use]
    pub(crate) fn data(self) -> EventData {
        let (kind, ring, port) = match self {
            Self::Control => (0, 0, 0),
            Self::Socket(port) => (1, 0, port),
            Self::Kick(port, ring) => (2, ring, port),
            Self::Tap(port) => (3, 0, port),
            Self::Wake => (4, 0, 0),
        };
        EventData::new_u64(kind << 32 | (ring as u64) << 16 | u64::from(port))
    }

    /// Decodes event data that [`data`](Self::data) encoded.
    #[must_use]
    pub(crate) fn from_data(data: EventData) -> Self {
        let [a, b, c, d, kind, ..] = data.u64().to_le_bytes();
        let port = u16::from_le_bytes([a, b]);
        match kind {
            1 => Self::Socket(port),
            2 => Self::Kick(port, usize::from(u16::from_le_bytes([c, d]))),
            3 => Self::Tap(port),
            4 => Self::Wake,
            _ => Self::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_encoded_and_decoded() {
        let keys = [
            EventKey::Control,
            EventKey::Socket(0),
            EventKey::Kick(1023, 31),
            EventKey::Kick(0, 1),
            EventKey::Tap(7),
            EventKey::Wake,
        ];
        for key in keys {
            assert_eq!(EventKey::from_data(key.data()), key);
        }
    }
}
