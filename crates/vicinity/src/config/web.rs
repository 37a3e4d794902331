//! The page's read-only socket and its TCP address.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;
use super::values::{absolute, unix_group};

/// Who may see the page, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Web {
    /// The number of the group that may connect to the read-only socket; without it, only the daemon's user may.
    pub(crate) group: Option<u32>,
    /// The TCP address, if there is one.
    pub(crate) listen: Option<WebListen>,
}

/// A TCP address of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebListen {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The name by which browsers reach the host, if they do not use an IP address.
    pub(crate) host_name: Option<String>,
    /// The file with the token that clients show.
    pub(crate) token_file: PathBuf,
    /// The PEM file of the certificate.
    pub(crate) certificate: PathBuf,
    /// The PEM file of its key.
    pub(crate) key: PathBuf,
}

/// Checks `[web]`.
pub(super) fn check(written: &file::Web) -> Result<Web, ValueError> {
    let group = written.group.as_ref().map(unix_group).transpose()?;
    let Some(listen) = &written.listen else {
        let alone = [&written.token_file, &written.certificate, &written.key];
        let alone = alone.into_iter().flatten().map(Spanned::span);
        let alone = alone
            .chain(written.host_name.iter().map(Spanned::span))
            .next();
        return match alone {
            Some(place) => Err(ValueError::new(
                place,
                "this key is for a page with an address",
                "add `listen`, like \"192.0.2.1:8443\", or remove the key",
            )),
            None => Ok(Web {
                group,
                listen: None,
            }),
        };
    };
    let needed = |path: &Option<Spanned<PathBuf>>, key: &str| match path {
        Some(path) => absolute(path),
        None => Err(ValueError::new(
            listen.span(),
            format!("a page with an address needs `{key}`"),
            "the page shows all VMs of the host: give `token-file`, `certificate` and `key`, or remove `listen` and \
             use `ssh -L` (docs/page.md)",
        )),
    };
    Ok(Web {
        group,
        listen: Some(WebListen {
            address: *listen.get_ref(),
            host_name: written.host_name.as_ref().map(host_name).transpose()?,
            token_file: needed(&written.token_file, "token-file")?,
            certificate: needed(&written.certificate, "certificate")?,
            key: needed(&written.key, "key")?,
        }),
    })
}

/// Checks a host name (RFC 1123, 2.1), and returns it in lower case.
fn host_name(written: &Spanned<String>) -> Result<String, ValueError> {
    let name = written.get_ref().to_ascii_lowercase();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let valid = !name.is_empty() && name.len() <= 253 && name.bytes().all(allowed);
    if valid {
        return Ok(name);
    }
    let help = "write the name that browsers use, without a port, like \"host.example.org\"";
    Err(ValueError::new(
        written.span(),
        "this is no host name",
        help,
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::of_text;

    const NETWORK: &str = "[[network]]\nname = \"lan\"\naccept = true\n";

    fn of(web: &str) -> Result<super::Web, String> {
        let text = format!("{NETWORK}[web]\n{web}");
        let config = of_text(&text, Path::new("/run/vicinity"));
        config
            .map(|config| config.web)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_has_a_group_and_an_address_only_with_token_and_certificate() {
        assert_eq!(of("").unwrap(), super::Web::default());
        assert_eq!(of("group = \"4711\"").unwrap().group, Some(4711));
        assert_eq!(of("group = \"root\"").unwrap().group, Some(0));
        let files = "token-file = \"/t\"\ncertificate = \"/c\"\nkey = \"/k\"\n";
        let web = of(&format!(
            "listen = \"[::1]:8443\"\nhost-name = \"Host.Example\"\n{files}"
        ));
        let listen = web.unwrap().listen.unwrap();
        assert_eq!(listen.host_name.as_deref(), Some("host.example"));
        for (wrong, said) in [
            ("group = \"no-such-group\"", "no group"),
            ("listen = \"127.0.0.1:1\"", "needs `token-file`"),
            (
                "listen = \"127.0.0.1:1\"\ntoken-file = \"/t\"",
                "needs `certificate`",
            ),
            ("key = \"/k\"", "for a page with an address"),
            (
                &format!("listen = \"1.2.3.4:1\"\nhost-name = \"a b\"\n{files}"),
                "no host name",
            ),
            ("listn = 1", "did you mean `listen`"),
        ] {
            let error = of(wrong).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
