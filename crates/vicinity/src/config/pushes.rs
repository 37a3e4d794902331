//! Where spaces push to.

use std::path::PathBuf;

use memory_plane::push::{Target, Way};
use serde::{Deserialize, Serialize};

use super::check::absolute;
use super::complaint::Mistake;
use super::file;

/// Where a space pushes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Push {
    /// A valid [`Target`].
    pub(crate) to: String,
    /// What is in this file, the store is shown.
    pub(crate) token_file: Option<PathBuf>,
    /// For TLS: who is trusted.
    pub(crate) trust: Option<PathBuf>,
}

/// A space is fetched from or pushes: what a store has is gone from the folder.
pub(super) fn check(space: &file::Space) -> Result<Option<Push>, Mistake> {
    let (token_file, trust) = (&space.push_token_file, &space.push_trust);
    let Some(to) = &space.push else {
        return match token_file.as_ref().or(trust.as_ref()) {
            None => Ok(None),
            Some(lonely) => {
                let message = "a space that pushes nowhere";
                Err(Mistake::new(
                    lonely.span(),
                    message,
                    "say where to in `push`",
                ))
            }
        };
    };
    let target: Target = to.get_ref().parse().map_err(|error| {
        let message = format!("`{}` is no store", to.get_ref().escape_debug());
        Mistake::new(to.span(), message, format!("{error}"))
    })?;
    if let Some(listen) = &space.listen {
        let help = "what is pushed goes from the folder: take `push` or `listen` away";
        return Err(Mistake::new(
            listen.span(),
            "a space that pushes has no clients",
            help,
        ));
    }
    if (target.way == Way::Https) != trust.is_some() {
        let help = "`push-trust` names a PEM file of the authorities that an https store is trusted by, \
                    like /etc/ssl/certs/ca-certificates.crt";
        return Err(Mistake::new(to.span(), "TLS needs somebody to trust", help));
    }
    Ok(Some(Push {
        to: to.get_ref().clone(),
        token_file: token_file.as_ref().map(absolute).transpose()?,
        trust: trust.as_ref().map(absolute).transpose()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const SPACE: &str = "[[space]]\nvm = \"db\"\n";

    #[test]
    fn a_space_that_pushes_is_read() {
        let keys = "push = \"https://store:9000/films/\"\npush-token-file = \"/etc/token\"\n\
                    push-trust = \"/etc/ca.pem\"\n";
        let config = parse("test.toml", &format!("{SPACE}{keys}"), None).unwrap();
        let push = config.spaces[0].push.as_ref().unwrap();
        assert_eq!(push.to, "https://store:9000/films/");
        let files = (push.token_file.as_deref(), push.trust.as_deref());
        let [token, trust] = ["/etc/token", "/etc/ca.pem"].map(std::path::Path::new);
        assert_eq!(files, (Some(token), Some(trust)));
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
            ["`ftp://store/` is no store", "tcp://HOST:PORT"],
        );
        complains(
            "push = \"http://store/\"\nallow = [\"::/0\"]\nlisten = \"127.0.0.1:1\"",
            ["has no clients", "`push` or `listen`"],
        );
        for blind in [
            "push = \"https://store/\"",
            "push = \"http://store/\"\npush-trust = \"/x\"",
        ] {
            complains(blind, ["somebody to trust", "push-trust"]);
        }
        complains(
            "push-token-file = \"/etc/token\"",
            ["pushes nowhere", "`push`"],
        );
    }
}
