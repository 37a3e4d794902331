//! Access control: which clients may fetch a space's objects.

use std::net::IpAddr;

use headers::Authorization;
use headers::authorization::Bearer;
use ipnet::IpNet;

/// The clients that may fetch a space's objects: by address or by token. The default allows none.
#[derive(Clone, Default)]
pub struct Access {
    /// Networks whose clients may fetch.
    pub allow: Vec<IpNet>,
    /// The bearer token with which any client may fetch.
    pub token: Option<String>,
}

impl Access {
    /// Returns whether no client may fetch.
    #[must_use]
    pub fn allows_nobody(&self) -> bool {
        self.allow.is_empty() && self.token.is_none()
    }

    /// Returns whether a client with this address may connect: it may fetch, or could present the token.
    #[must_use]
    pub fn may_connect(&self, from: IpAddr) -> bool {
        self.token.is_some() || self.permits(from, None)
    }

    /// Returns whether a client with this address and this token may fetch.
    #[must_use]
    pub fn permits(&self, from: IpAddr, presented: Option<&Authorization<Bearer>>) -> bool {
        let from = from.to_canonical();
        let presented = presented.map(|presented| presented.token().as_bytes());
        let token = self.token.as_deref().map(str::as_bytes);
        let token_matches = matches!((token, presented), (Some(token), Some(presented)) if equal_in_constant_time(token, presented));
        token_matches || self.allow.iter().any(|net| net.contains(&from))
    }
}

/// Compares two strings in a time that does not depend on where they differ, against timing attacks.
fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differing == 0
}

impl std::fmt::Debug for Access {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        let mut to = to.debug_struct("Access");
        to.field("allow", &self.allow)
            .field("token", &token)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_granted_by_address_or_by_token() {
        let allowed: IpAddr = "10.1.2.3".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
        let other: IpAddr = "11.1.2.3".parse().unwrap();
        let right = Authorization::bearer("secret").unwrap();
        let none = Access::default();
        assert!(none.allows_nobody() && !none.permits(allowed, Some(&right)));
        let access = Access {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            token: Some("secret".to_owned()),
        };
        assert!(access.permits(allowed, None) && access.permits(mapped, None));
        assert!(!access.permits(other, None) && access.permits(other, Some(&right)));
        for wrong in ["secre", "secret2", "secreT"] {
            let wrong = Authorization::bearer(wrong).unwrap();
            assert!(!access.permits(other, Some(&wrong)));
        }
        assert!(!format!("{access:?}").contains("secret"));
    }
}
