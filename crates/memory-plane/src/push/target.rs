//! The URL of the store that a space pushes to.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// The protocol of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
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
    pub way: Way,
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
pub struct NoTarget;

impl FromStr for Target {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let url: Uri = text.parse().map_err(|_| NoTarget)?;
        let authority = url.authority().ok_or(NoTarget)?.as_str();
        let (way, default_port) = match url.scheme_str() {
            Some("http") => (Way::Http, Some(80)),
            Some("https") => (Way::Https, Some(443)),
            Some("tcp") => (Way::Tcp, None),
            _ => return Err(NoTarget),
        };
        let host = url.host().unwrap_or_default();
        if url.port_u16().is_none() && authority.len() > host.len() {
            return Err(NoTarget);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_u16().or(default_port).filter(|port| *port > 0);
        let has_host = !host.is_empty() && !authority.contains('@') && !text.contains('#');
        // Raw TCP has no prefix.
        let prefix = url.path().trim_end_matches('/');
        if !has_host || url.query().is_some() || (way == Way::Tcp && !prefix.is_empty()) {
            return Err(NoTarget);
        }
        Ok(Self {
            way,
            host: host.to_owned(),
            port: port.ok_or(NoTarget)?,
            authority: authority.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.way {
            Way::Http => "http",
            Way::Https => "https",
            Way::Tcp => "tcp",
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
        let expect_target = |text, way, host: &str, port, prefix: &str| {
            let target = parse(text).unwrap();
            assert_eq!((target.way, target.port), (way, port), "{text}");
            assert_eq!((&*target.host, &*target.prefix), (host, prefix), "{text}");
        };
        expect_target("http://store", Way::Http, "store", 80, "");
        expect_target(
            "http://store:9000/films/new/",
            Way::Http,
            "store",
            9000,
            "/films/new",
        );
        expect_target("https://[::1]/", Way::Https, "::1", 443, "");
        expect_target("tcp://10.0.0.1:7000", Way::Tcp, "10.0.0.1", 7000, "");
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
            assert_eq!(parse(invalid), Err(NoTarget), "{invalid}");
        }
        let shown = parse("http://store:9000/films").unwrap().to_string();
        assert_eq!(shown, "http://store:9000/films/");
    }
}
