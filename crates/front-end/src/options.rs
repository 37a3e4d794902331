//! The options of a NIC, and the frames that it receives.

use crate::features;

/// The layout of the buffers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Header and frame in one descriptor.
    One,
    /// The header in a descriptor of its own.
    SeparateHeader,
    /// In descriptors of this many bytes each.
    Pieces(u32),
    /// In pieces of this many bytes each, behind one indirect descriptor.
    Indirect(u32),
}

/// The options of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The features that its driver acknowledges.
    pub features: u64,
    /// Size of both rings.
    pub size: u16,
    /// Bytes of a receive buffer, header included.
    pub receive_bytes: u32,
    /// How receive buffers are laid out.
    pub receive_layout: Layout,
    /// The number of queue pairs.
    pub pairs: u16,
    /// The number of regions in which the memory is presented.
    pub regions: u64,
    /// Posts receive buffers at the start, and again after they were read.
    pub post: bool,
    /// The index at which all rings begin.
    pub base: u16,
    /// Waits for a reply to each message that carries a ring's descriptor, as QEMU 10.2 and later do (`vhost_set_vring_file` in its `hw/virtio/vhost-user.c`).
    pub replies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            features: features::PLAIN,
            size: 256,
            receive_bytes: 1600,
            receive_layout: Layout::One,
            pairs: 1,
            regions: 1,
            post: true,
            base: 0,
            replies: false,
        }
    }
}

/// A frame as the guest receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The network header.
    pub header: Vec<u8>,
    /// The frame.
    pub frame: Vec<u8>,
    /// The number of receive buffers that it took.
    pub buffers: u16,
}
