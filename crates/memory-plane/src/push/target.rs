//! The URL of the store that a space pushes to.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// The protocol of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PUT requests by HTTP/1.1.
    Http,
    /// PUT requests by HTTP/1.1 and TLS.
    Https,
    /// Raw TCP: files one after the other (see [`super::raw`]).
    Tcp,
}

/// A store, as a URL like `http://store:9000/films/` or `tcp://store:7000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The protocol.
    pub protocol: Protocol,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Host and port as in the URL.
    pub(crate) authority: String,
    /// Prefix of every path, without a slash at its end.
    pub(crate) prefix: String,
}

/// The error of a URL that does not name a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write `http://HOST[:PORT]/PATH`, `https://HOST[:PORT]/PATH` or `tcp://HOST:PORT`")]
pub struct InvalidTarget;

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let url: Uri = text.parse().map_err(|_| InvalidTarget)?;
        let authority = url.authority().ok_or(InvalidTarget)?.as_str();
        let (protocol, default_port) = match url.scheme_str() {
            Some("http") => (Protocol::Http, Some(80)),
            Some("https") => (Protocol::Https, Some(443)),
            Some("tcp") => (Protocol::Tcp, None),
            _ => return Err(InvalidTarget),
        };
        let host = url.host().unwrap_or_default();
        if url.port_u16().is_none() && authority.len() > host.len() {
            return Err(InvalidTarget);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_u16().or(default_port).filter(|port| *port > 0);
        let has_host = !host.is_empty() && !authority.contains('@') && !text.contains('#');
        // Raw TCP has no prefix.
        let prefix = url.path().trim_end_matches('/');
        if !has_host || url.query().is_some() || (protocol == Protocol::Tcp && !prefix.is_empty()) {
            return Err(InvalidTarget);
        }
        Ok(Self {
            protocol,
            host: host.to_owned(),
            port: port.ok_or(InvalidTarget)?,
            authority: authority.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Tcp => "tcp",
        };
        write!(to, "{scheme}://{}{}/", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_parsed_from_a_url() {
        let parse = |text: &str| text.parse::<Target>();
        let expect_target = |text, protocol, host: &str, port, prefix: &str| {
            let target = parse(text).unwrap();
            assert_eq!((target.protocol, target.port), (protocol, port), "{text}");
            assert_eq!((&*target.host, &*target.prefix), (host, prefix), "{text}");
        };
        expect_target("http://store", Protocol::Http, "store", 80, "");
        expect_target(
            "http://store:9000/films/new/",
            Protocol::Http,
            "store",
            9000,
            "/films/new",
        );
        expect_target("https://[::1]/", Protocol::Https, "::1", 443, "");
        expect_target("tcp://10.0.0.1:7000", Protocol::Tcp, "10.0.0.1", 7000, "");
        for invalid in [
            "",
            "store",
            "/store",
            "ftp://store/",
            "tcp://store",
            "tcp://store:1/x",
            "http://",
            "http://a@store:80/",
            "http://store/?a=b",
            "http://store/#a",
            "http://store:0/",
            "http://store:99999/",
            "http:///x",
        ] {
            assert_eq!(parse(invalid), Err(InvalidTarget), "{invalid}");
        }
        let shown = parse("http://store:9000/films").unwrap().to_string();
        assert_eq!(shown, "http://store:9000/films/");
    }
}
