//! The options of a NIC, and the frames that it receives.

use crate::features;

/// How the buffers of a frame are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Header and frame in one descriptor.
    One,
    /// The header in a descriptor of its own.
    HeaderApart,
    /// In descriptors of so many bytes.
    Pieces(u32),
    /// In pieces of so many bytes, behind one indirect descriptor.
    Indirect(u32),
}

/// What a NIC is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Features its driver takes.
    pub features: u64,
    /// Size of both rings.
    pub size: u16,
    /// Bytes of a receive buffer, header included.
    pub receive_bytes: u32,
    /// How receive buffers are laid out.
    pub receive_layout: Layout,
    /// Queue pairs.
    pub pairs: u16,
    /// Regions the memory is presented in.
    pub regions: u64,
    /// Post receive buffers at the start, and again once they are read.
    pub post: bool,
    /// Where all rings begin.
    pub base: u16,
    /// Wait for an answer to each message that hands a ring's descriptor over, as QEMU 10.2 and
    /// later do (`vhost_set_vring_file` in its `hw/virtio/vhost-user.c`).
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

/// A frame as the guest finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The network header.
    pub header: Vec<u8>,
    /// The frame.
    pub frame: Vec<u8>,
    /// Receive buffers it took.
    pub buffers: u16,
}
