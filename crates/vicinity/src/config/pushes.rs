//! The stores that spaces push files to.

use std::path::PathBuf;

use memory_plane::push::{Protocol, Target};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;
use super::values::absolute;

/// Default region for signatures. Self-hosted stores accept this one.
const REGION: &str = "us-east-1";

/// The store to which a space pushes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Push {
    /// A valid [`Target`].
    pub(crate) to: String,
    /// The credential of the space at the store.
    pub(crate) credential: Option<Credential>,
    /// For TLS: the file of trusted certificate authorities.
    pub(crate) trust: Option<PathBuf>,
}

/// The credential of a space at a store, in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Credential {
    /// The requests contain the token in this file.
    Token(PathBuf),
    /// The requests are signed with the keys in this file.
    Keys { file: PathBuf, region: String },
}

/// Checks the `push` keys of a space. A space that pushes has no clients, because a file leaves the
/// folder once the store has it.
pub(super) fn check(space: &file::Space) -> Result<Option<Push>, ValueError> {
    let trust = &space.push_trust;
    let Some(to) = &space.push else {
        let files = [&space.push_token_file, &space.push_keys_file, trust];
        let lonely = files.into_iter().flatten().map(Spanned::span);
        let mut lonely = lonely.chain(space.push_region.as_ref().map(Spanned::span));
        return lonely.next().map_or(Ok(None), |lonely| {
            let message = "the space has no `push`";
            Err(ValueError::new(
                lonely,
                message,
                "set `push` to the store that gets the files, or remove this \
            key",
            ))
        });
    };
    let target: Target = to.get_ref().parse().map_err(|error| {
        let message = format!("`{}` is not a store", to.get_ref().escape_debug());
        ValueError::new(to.span(), message, format!("{error}"))
    })?;
    if let Some(listen) = &space.listen {
        let help = "a file leaves the folder once the store has it; remove `push` or `listen`";
        return Err(ValueError::new(
            listen.span(),
            "a space that pushes has no clients",
            help,
        ));
    }
    if (target.protocol == Protocol::Https) != trust.is_some() {
        let help = "an https store needs `push-ca-file`, a PEM file of the certificate authorities that Vicinity \
            trusts, like /etc/ssl/certs/ca-certificates.crt; other stores must not have it";
        return Err(ValueError::new(
            to.span(),
            "the store's scheme and `push-ca-file` do not agree",
            help,
        ));
    }
    if let (Protocol::Tcp, Some(keys)) = (target.protocol, &space.push_keys_file) {
        let help = "only http and https requests are signed; remove `push-keys-file`";
        return Err(ValueError::new(
            keys.span(),
            "raw TCP has no signed requests",
            help,
        ));
    }
    Ok(Some(Push {
        to: to.get_ref().clone(),
        credential: credential(space)?,
        trust: trust.as_ref().map(absolute).transpose()?,
    }))
}

fn credential(space: &file::Space) -> Result<Option<Credential>, ValueError> {
    let region = &space.push_region;
    match (&space.push_token_file, &space.push_keys_file) {
        (Some(_), Some(keys)) => {
            let help = "remove `push-token-file` or `push-keys-file`";
            let message = "a store gets either a token or signed requests";
            Err(ValueError::new(keys.span(), message, help))
        }
        (_, Some(file)) => Ok(Some(Credential::Keys {
            file: absolute(file)?,
            region: region
                .as_ref()
                .map_or(Ok(REGION.to_owned()), self::region)?,
        })),
        (token, None) => match region {
            Some(region) => {
                let help = "set `push-keys-file`, the file of the keys for this region";
                Err(ValueError::new(
                    region.span(),
                    "`push-region` without `push-keys-file`",
                    help,
                ))
            }
            None => token
                .as_ref()
                .map(absolute)
                .transpose()
                .map(|token| token.map(Credential::Token)),
        },
    }
}

fn region(written: &Spanned<String>) -> Result<String, ValueError> {
    let text = written.get_ref();
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !text.is_empty() && text.bytes().all(good) {
        return Ok(text.clone());
    }
    let message = format!("`{}` is not a region", text.escape_debug());
    let help = "write a word like \"eu-central-1\"; stores without regions accept \"us-east-1\"";
    Err(ValueError::new(written.span(), message, help))
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    const SPACE: &str = "[[space]]\nvm = \"db\"\n";

    #[test]
    fn a_space_that_pushes_is_read() {
        let keys = "push = \"https://store:9000/films/\"\npush-token-file = \"/etc/token\"\n\
                    push-ca-file = \"/etc/ca.pem\"\n";
        let config = parse("test.toml", &format!("{SPACE}{keys}"), None).unwrap();
        let push = config.spaces[0].push.as_ref().unwrap();
        assert_eq!(push.to, "https://store:9000/films/");
        let [token, trust] = ["/etc/token", "/etc/ca.pem"].map(PathBuf::from);
        assert_eq!(
            (&push.credential, &push.trust),
            (&Some(Credential::Token(token)), &Some(trust))
        );
        for (more, region) in [
            ("", "us-east-1"),
            ("push-region = \"eu-north-1\"", "eu-north-1"),
        ] {
            let keys = format!("push = \"http://store/\"\npush-keys-file = \"/etc/keys\"\n{more}");
            let config = parse("test.toml", &format!("{SPACE}{keys}"), None).unwrap();
            let keys = Credential::Keys {
                file: "/etc/keys".into(),
                region: region.to_owned(),
            };
            assert_eq!(
                config.spaces[0].push.as_ref().unwrap().credential,
                Some(keys)
            );
        }
    }

    #[test]
    fn a_push_that_makes_no_sense_is_shown() {
        let complains = |keys: &str, parts: [&str; 2]| {
            let error = parse("test.toml", &format!("{SPACE}{keys}"), None).unwrap_err();
            let error = error.to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        complains(
            "push = \"ftp://store/\"",
            ["`ftp://store/` is not a store", "tcp://HOST:PORT"],
        );
        complains(
            "push = \"http://store/\"\nallow = [\"::/0\"]\nlisten = \"127.0.0.1:1\"",
            ["has no clients", "`push` or `listen`"],
        );
        for blind in [
            "push = \"https://store/\"",
            "push = \"http://store/\"\npush-ca-file = \"/x\"",
        ] {
            complains(
                blind,
                ["do not agree", "an https store needs `push-ca-file`"],
            );
        }
        for lonely in [
            "push-token-file = \"/x\"",
            "push-keys-file = \"/x\"",
            "push-region = \"x\"",
        ] {
            complains(lonely, ["has no `push`", "set `push`"]);
        }
        let keys = "push-keys-file = \"/x\"\n";
        let http = "push = \"http://store/\"\n";
        for (more, parts) in [
            (
                format!("push = \"tcp://store:1\"\n{keys}"),
                ["no signed requests", "`push-keys-file`"],
            ),
            (
                format!("{http}{keys}push-token-file = \"/y\""),
                ["either a token or", "`push-token-file`"],
            ),
            (
                format!("{http}{keys}push-region = \"EU 1\""),
                ["`EU 1` is not a region", "us-east-1"],
            ),
            (
                format!("{http}push-region = \"x\""),
                ["`push-region` without", "`push-keys-file`"],
            ),
        ] {
            complains(&more, parts);
        }
    }
}
