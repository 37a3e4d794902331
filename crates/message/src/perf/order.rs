//! The client's order of a measurement, and its encoding.

/// Bytes of the longest message that an order may have.
pub const LONGEST: u32 = 1 << 28;

/// The most messages in flight.
pub(super) const MAX_WINDOW: u8 = 32;

/// The most bytes in flight: the server allocates as many.
const ORDERED: u64 = 4 * LONGEST as u64;

/// The memory that messages are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program's own memory.
    Program,
    /// The endpoint's heap, see [`allocate`](crate::Endpoint::allocate).
    Heap,
    /// Memory for the peer, see [`allocate_for`](crate::Endpoint::allocate_for).
    Shared,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Program, Self::Heap, Self::Shared];
}

/// The messages of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The memory, on both sides.
    pub memory: Kind,
    /// Bytes of a message.
    pub length: u32,
    /// Messages.
    pub count: u32,
    /// Messages in flight in a stream, see [`window`](super::window()).
    pub window: u8,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Whether messages go in one direction (a stream), or are echoed one by one.
    pub(super) stream: bool,
    pub(super) load: Load,
}

impl Order {
    pub(super) fn encode(self) -> Vec<u8> {
        let flags = [u8::from(self.stream), self.load.memory as u8];
        let numbers = [
            self.load.length.to_le_bytes(),
            self.load.count.to_le_bytes(),
        ];
        [&flags[..], numbers.as_flattened(), &[self.load.window]].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([stream, memory], bytes) = bytes.split_first_chunk()?;
        let (length, bytes) = bytes.split_first_chunk()?;
        let (count, bytes) = bytes.split_first_chunk()?;
        let &[window] = bytes else {
            return None;
        };
        let load = Load {
            memory: *Kind::ALL.get(usize::from(*memory))?,
            length: u32::from_le_bytes(*length),
            count: u32::from_le_bytes(*count),
            window,
        };
        let in_flight = u64::from(load.length) * u64::from(window);
        let sane =
            (1..=MAX_WINDOW).contains(&window) && load.length <= LONGEST && in_flight <= ORDERED;
        sane.then_some(Self {
            stream: *stream == 1,
            load,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_decoded_as_it_was_encoded() {
        let order = Order {
            stream: true,
            load: Load {
                memory: Kind::Heap,
                length: 70_000,
                count: 9,
                window: 7,
            },
        };
        assert_eq!(Order::decode(&order.encode()), Some(order));
        assert_eq!(Order::decode(&[0; 11]), None, "no message in flight");
        assert_eq!(Order::decode(&[1; 12]), None);
        let larger = |length, window| {
            let load = Load {
                length,
                window,
                ..order.load
            };
            Order::decode(&Order { load, ..order }.encode())
        };
        assert!(larger(LONGEST, 4).is_some());
        assert_eq!(larger(LONGEST + 1, 1), None, "longer than a message may be");
        assert_eq!(larger(LONGEST, 5), None, "more bytes than may be in flight");
    }
}
