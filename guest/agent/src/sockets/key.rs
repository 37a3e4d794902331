//! What an event of the epoll set is about.

use rustix::event::epoll::EventData;

/// A descriptor in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The AF_VSOCK port that stands for a TCP port.
    Listener(u32),
    /// The port of this agent.
    Agent,
    /// The socket to which programs connect.
    Claims,
    /// A program that has said nothing yet, by its number.
    Program(u32),
    /// The TCP socket of a connection, by its number.
    Tcp(u32),
    /// The AF_VSOCK socket of a connection.
    Vsock(u32),
    /// The program that a connection was passed to.
    Taker(u32),
}

impl Key {
    /// Returns the number that the kernel keeps.
    pub(super) fn data(self) -> EventData {
        let (kind, number) = match self {
            Self::Listener(port) => (0, port),
            Self::Agent => (1, 0),
            Self::Claims => (2, 0),
            Self::Program(number) => (3, number),
            Self::Tcp(number) => (4, number),
            Self::Vsock(number) => (5, number),
            Self::Taker(number) => (6, number),
        };
        EventData::new_u64((kind << 32) | u64::from(number))
    }

    /// Returns the key with this number.
    pub(super) fn of(data: EventData) -> Option<Self> {
        let data = data.u64();
        let number = u32::try_from(data & u64::from(u32::MAX)).ok()?;
        Some(match data >> 32 {
            0 => Self::Listener(number),
            1 => Self::Agent,
            2 => Self::Claims,
            3 => Self::Program(number),
            4 => Self::Tcp(number),
            5 => Self::Vsock(number),
            6 => Self::Taker(number),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_keys() {
        for key in [
            Key::Listener(u32::MAX),
            Key::Agent,
            Key::Claims,
            Key::Program(1),
            Key::Tcp(2),
            Key::Vsock(3),
            Key::Taker(4),
        ] {
            assert_eq!(Key::of(key.data()), Some(key));
        }
        assert_eq!(Key::of(EventData::new_u64(7 << 32)), None);
    }
}
