//! Why a frame cannot be translated.

/// Why a frame cannot be made fit for a receiver. Each reason is the sending guest's doing,
/// except [`Untranslatable::NotGso`], which is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Untranslatable {
    /// `csum_start` or `csum_offset` leads out of the frame.
    #[error("the checksum to fill in lies outside the frame")]
    ChecksumOutside,
    /// `csum_start` lies inside the Ethernet header. Filling it in would change the addresses
    /// that the frame was already switched by.
    #[error("the checksum to fill in lies in the Ethernet header")]
    ChecksumInEthernet,
    /// A GSO frame whose `csum_start` and `csum_offset` are not its transport header's.
    #[error("the checksum of the GSO frame is not that of its transport header")]
    ChecksumPlace,
    /// The caller wants to cut a frame that is not a GSO frame.
    #[error("the frame is not a GSO frame")]
    NotGso,
    /// `gso_size` is 0.
    #[error("gso_size is 0")]
    NoGsoSize,
    /// `gso_size` is below [`MIN_GSO_SIZE`](super::MIN_GSO_SIZE).
    #[error("gso_size is too small")]
    SmallGsoSize,
    /// The headers are longer than [`MAX_HEADERS`](super::MAX_HEADERS).
    #[error("the headers are too long")]
    HeadersTooLong,
    /// The frame is longer than an IP packet can be.
    #[error("the frame is too long")]
    FrameTooLong,
    /// The frame ends inside its Ethernet header or VLAN tags.
    #[error("the frame ends inside its Ethernet header")]
    ShortEthernet,
    /// The frame ends inside its IP header or an IPv6 extension header.
    #[error("the frame ends inside its IP header")]
    ShortIp,
    /// The IP packet ends inside its TCP or UDP header.
    #[error("the packet ends inside its transport header")]
    ShortTransport,
    /// The EtherType is not that of the IP version the GSO type stands for.
    #[error("the EtherType does not fit the GSO type")]
    WrongEtherType,
    /// The IP header's version is not the one the EtherType stands for.
    #[error("the IP version does not fit the EtherType")]
    WrongIpVersion,
    /// The IPv4 header claims to be shorter than 20 bytes.
    #[error("the IPv4 header length is too small")]
    BadIpHeaderLength,
    /// The IP header claims more bytes than the frame has.
    #[error("the IP length exceeds the frame")]
    IpLengthBeyondFrame,
    /// The IP header claims fewer bytes than the headers have.
    #[error("the IP length ends inside the headers")]
    IpLengthInsideHeaders,
    /// The IP packet carries another protocol than the GSO type stands for.
    #[error("the IP protocol does not fit the GSO type")]
    WrongProtocol,
    /// The packet is an IP fragment: it has no whole transport segment to cut.
    #[error("the packet is an IP fragment")]
    Fragment,
    /// An IPv6 routing header with segments left: the checksum covers an address that is not
    /// in the IPv6 header.
    #[error("the packet has an IPv6 routing header with segments left")]
    SourceRouted,
    /// The TCP header claims to be shorter than 20 bytes.
    #[error("the TCP header length is too small")]
    BadTcpHeaderLength,
}
