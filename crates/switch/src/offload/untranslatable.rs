//! The reasons why a frame cannot be translated.

/// Why a frame cannot be translated for a receiver. The sending guest causes each reason except
/// [`Untranslatable::NotGso`], which is an error of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Untranslatable {
    /// `csum_start` or `csum_offset` points outside the frame.
    #[error("the checksum to fill in lies outside the frame")]
    ChecksumOutside,
    /// `csum_start` is inside the Ethernet header. Writing the checksum would change the addresses by which the
    /// frame was already switched.
    #[error("the checksum to fill in lies in the Ethernet header")]
    ChecksumInEthernet,
    /// A GSO frame whose `csum_start` and `csum_offset` are not its transport header's.
    #[error("the checksum of the GSO frame is not that of its transport header")]
    ChecksumPlace,
    /// The caller wants to segment a frame that is not a GSO frame.
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
    /// The EtherType does not match the IP version of the GSO type.
    #[error("the EtherType does not fit the GSO type")]
    WrongEtherType,
    /// The version in the IP header does not match the EtherType.
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
    /// The IP protocol does not match the GSO type.
    #[error("the IP protocol does not fit the GSO type")]
    WrongProtocol,
    /// The packet is an IP fragment, which has no complete transport segment.
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
