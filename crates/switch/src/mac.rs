//! A MAC address.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A 48-bit MAC address in the low bits of a number; the octet that is first on the wire is the most
/// significant one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(u64);

/// The text is not a MAC address of the form `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write six hexadecimal octets with colons between them, like 52:54:00:12:34:56")]
pub struct MacError;

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self(0xffff_ffff_ffff);

    /// Returns the address as a number below 2^48.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Converts from a number; ignores all but the low 48 bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & 0xffff_ffff_ffff)
    }

    /// Converts from the octets in the order of the wire.
    #[must_use]
    pub const fn from_octets(octets: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = octets;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Returns the octets in the order of the wire.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// Returns whether this is a group address: broadcast or multicast (IEEE 802, the individual/group
    /// bit).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0 & (1 << 40) != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.octets();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(MacError)?;
            // `from_str_radix` would take a sign.
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        parts
            .next()
            .is_none()
            .then(|| Self::from_octets(octets))
            .ok_or(MacError)
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_octets_round_trip() {
        let mac: Mac = "52:54:00:12:34:56".parse().unwrap();
        assert_eq!(mac.octets(), [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(mac.to_string(), "52:54:00:12:34:56");
        assert!(!mac.is_group());
        assert!("33:33:00:00:00:01".parse::<Mac>().unwrap().is_group());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:0:12:34:56",
            "+2:54:00:12:34:56",
            "zz:54:00:12:34:56",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
