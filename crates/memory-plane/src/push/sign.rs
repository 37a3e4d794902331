//! Signing requests for S3, and for stores that speak like it (AWS Signature Version 4).
//!
//! What is signed is what a request is about: method, host, path, time. The content is not, for that would
//! have to be read twice: TLS looks after it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

use super::names::path;

/// The only way of signing there is here.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Whose keys.
const SERVICE: &str = "s3";

/// Instead of the content's checksum.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Headers that are signed, by name.
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// Longest file of keys, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// What a store knows us by.
pub struct Keys {
    id: String,
    secret: hmac::Key,
    region: String,
}

/// Why there are no keys. All are the caller's file.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Others than its owner may.
    #[error(
        "others than its owner may read it: `chmod 600` it, and change the keys if that was long so"
    )]
    Open,
    /// They are not in it.
    #[error("its [default] has no `aws_access_key_id` or no `aws_secret_access_key`")]
    Missing,
}

impl Keys {
    /// Those in this file (AWS's file of credentials, its profile `default`), for stores in a region.
    ///
    /// # Errors
    /// The file has none, or others may read it.
    pub fn read(file: &Path, region: &str) -> Result<Self, KeysError> {
        let mut text = String::new();
        let file = File::open(file)?;
        // Of what was opened, not of what has the name now.
        if file.metadata()?.mode() & OTHERS != 0 {
            return Err(KeysError::Open);
        }
        file.take(MAX_FILE).read_to_string(&mut text)?;
        let of = |key| in_default(&text, key).ok_or(KeysError::Missing);
        Ok(Self::new(
            of("aws_access_key_id")?,
            of("aws_secret_access_key")?,
            region,
        ))
    }

    fn new(id: &str, secret: &str, region: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: hmac::Key::new(HMAC_SHA256, format!("AWS4{secret}").as_bytes()),
            region: region.to_owned(),
        }
    }

    /// Headers that say who asks a host to PUT this path, at this time since 1970.
    pub(super) fn headers(&self, host: &str, at: &str, now: Duration) -> Option<HeaderMap> {
        let stamp = stamp(now);
        let request = format!(
            "PUT\n{}\n\nhost:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{stamp}\n\n{SIGNED}\n{UNSIGNED}",
            canonical(at)
        );
        let scope = self.scope(&stamp)?;
        let signature = self.signature(&stamp, &request)?;
        let shown = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}",
            self.id
        );
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::try_from(shown).ok()?);
        let (checksum, date) = ("x-amz-content-sha256", "x-amz-date");
        headers.insert(
            HeaderName::from_static(checksum),
            HeaderValue::from_static(UNSIGNED),
        );
        headers.insert(
            HeaderName::from_static(date),
            HeaderValue::try_from(stamp).ok()?,
        );
        Some(headers)
    }

    /// Where and when a signature is good: for a day.
    fn scope(&self, stamp: &str) -> Option<String> {
        let day = stamp.get(..8)?;
        Some(format!("{day}/{}/{SERVICE}/aws4_request", self.region))
    }

    /// Of a request in its canonical form.
    fn signature(&self, stamp: &str, request: &str) -> Option<String> {
        let scope = self.scope(stamp)?;
        let sum = hex(digest(&SHA256, request.as_bytes()).as_ref());
        let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{sum}");
        let key = scope.split('/').fold(self.secret.clone(), |key, word| {
            hmac::Key::new(HMAC_SHA256, hmac::sign(&key, word.as_bytes()).as_ref())
        });
        Some(hex(hmac::sign(&key, text.as_bytes()).as_ref()))
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Keys({})", self.id)
    }
}

/// The value of a key in the profile `default`.
fn in_default<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != "[default]").skip(1);
    let own = lines.by_ref().take_while(|line| !line.starts_with('['));
    let mut values = own.filter_map(|line| line.split_once('='));
    let (_, value) = values.find(|(name, _)| name.trim() == key)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// The path as every store writes it before it looks at a signature.
fn canonical(at: &str) -> String {
    let names = at.trim_start_matches('/').split('/');
    let names: Vec<Vec<u8>> = names
        .map(|name| percent_decode_str(name).collect())
        .collect();
    path(&names)
}

/// A time since 1970 as `20130524T000000Z`.
fn stamp(time: Duration) -> String {
    let seconds = time.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The Gregorian date so many days after the first of January 1970. Years are counted from March, so that
/// the day that may be missing is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// 2013-05-24 00:00:00 UTC, and keys: those of the examples in Amazon's documentation of S3.
    const THEN: Duration = Duration::from_secs(1_369_353_600);

    fn keys() -> Keys {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        Keys::new("AKIAIOSFODNN7EXAMPLE", secret, "us-east-1")
    }

    #[test]
    fn a_request_is_signed_as_in_amazons_examples() {
        let sum = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let put = format!(
            "PUT\n/test%24file.text\n\ndate:Fri, 24 May 2013 00:00:00 GMT\n\
             host:examplebucket.s3.amazonaws.com\nx-amz-content-sha256:{sum}\n\
             x-amz-date:20130524T000000Z\nx-amz-storage-class:REDUCED_REDUNDANCY\n\n\
             date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class\n{sum}"
        );
        let empty = hex(digest(&SHA256, b"").as_ref());
        let get = format!(
            "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n\
             x-amz-content-sha256:{empty}\nx-amz-date:20130524T000000Z\n\n\
             host;range;x-amz-content-sha256;x-amz-date\n{empty}"
        );
        assert_eq!(stamp(THEN), "20130524T000000Z");
        for (request, signature) in [
            (
                put,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                get,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ] {
            assert_eq!(keys().signature(&stamp(THEN), &request).unwrap(), signature);
        }
    }

    /// As botocore 1.43 signs it.
    #[test]
    fn a_put_is_signed_as_by_amazons_library() {
        let keys = Keys {
            region: "eu-central-1".to_owned(),
            ..keys()
        };
        let now = Duration::from_secs(1_795_385_707);
        let path = "/films/a%20film%2b%E2%82%ac.m3u8";
        let headers = keys.headers("store:9000", path, now).unwrap();
        assert_eq!(
            headers["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261122/eu-central-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, \
             Signature=8928fa0e36bbfe65966ba704ad5b07cf875e650960821c8dbc3bfd9b78982a85"
        );
        assert_eq!(headers["x-amz-date"], "20261122T221507Z");
        assert_eq!(headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, date_of_it) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_722, (2023, 12, 31)),
            (19_782, (2024, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), date_of_it, "{day}");
        }
    }

    #[test]
    fn keys_are_read_from_a_file_that_nobody_else_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let read = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            Keys::read(&file, "us-east-1")
        };
        let good = "[other]\naws_access_key_id = B\n\n[default]\naws_access_key_id = A\n\
                    aws_secret_access_key=s=/+\n[more]\naws_access_key_id = C\n";
        let found = read(good, 0o600).unwrap();
        let as_written = Keys::new("A", "s=/+", "us-east-1");
        let sign = |keys: &Keys| keys.headers("store", "/a", THEN).unwrap();
        assert_eq!(sign(&found), sign(&as_written));
        assert!(!format!("{found:?}").contains("s="));
        assert!(matches!(read(good, 0o640), Err(KeysError::Open)));
        for lacking in [
            "",
            "[default]\naws_access_key_id = A\n[x]\naws_secret_access_key = s\n",
        ] {
            assert!(matches!(read(lacking, 0o600), Err(KeysError::Missing)));
        }
    }
}
