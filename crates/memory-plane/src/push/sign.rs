//! Signs requests for S3 and compatible stores (AWS Signature Version 4).
//!
//! The signature covers the method, host, path and time. It does not cover the content, because the content would have to be
//! read twice; TLS protects its integrity.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

use super::names::url_path;

/// The signature algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The service in the scope of the signature.
const SERVICE: &str = "s3";

/// Replaces the checksum of the content.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// The signed headers, in alphabetical order.
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// Longest credentials file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Permission bits of group and others.
const OTHERS_PERMISSIONS: u32 = 0o077;

/// The access keys for a store, with its region.
pub struct Keys {
    id: String,
    secret: hmac::Key,
    region: String,
}

/// Why keys cannot be read. The cause is in the file that the caller names.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Users other than the owner may read the file.
    #[error(
        "users other than its owner can read it; run `chmod 600` on it, and replace the keys if other users may \
            have read them"
    )]
    Open,
    /// The file has no keys in its profile `default`.
    #[error("its [default] has no `aws_access_key_id` or no `aws_secret_access_key`")]
    Missing,
}

impl Keys {
    /// Reads the keys of the profile `default` from an AWS credentials file, for stores in `region`.
    ///
    /// # Errors
    /// Returns an error if the file has no such keys or if users other than its owner may read it.
    pub fn read(file: &Path, region: &str) -> Result<Self, KeysError> {
        let mut text = String::new();
        let file = File::open(file)?;
        // Check the opened file, because the name may refer to another file by now.
        if file.metadata()?.mode() & OTHERS_PERMISSIONS != 0 {
            return Err(KeysError::Open);
        }
        file.take(MAX_FILE).read_to_string(&mut text)?;
        let of = |key| default_profile_value(&text, key).ok_or(KeysError::Missing);
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

    /// Returns the headers that sign a PUT of the path `at` to `host` at the time `now` since 1970.
    pub(super) fn headers(&self, host: &str, at: &str, now: Duration) -> Option<HeaderMap> {
        let stamp = stamp(now);
        let request = format!(
            "PUT\n{}\n\nhost:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{stamp}\n\n{SIGNED}\n{UNSIGNED}",
            canonical_path(at)
        );
        let scope = self.scope(&stamp)?;
        let signature = self.signature(&stamp, &request)?;
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}",
            self.id
        );
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::try_from(authorization).ok()?);
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

    /// Returns the credential scope: day, region and service. A signature is valid for that day.
    fn scope(&self, stamp: &str) -> Option<String> {
        let day = stamp.get(..8)?;
        Some(format!("{day}/{}/{SERVICE}/aws4_request", self.region))
    }

    /// Returns the signature of a canonical request.
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

/// Returns the value of a key in the profile `default`.
fn default_profile_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != "[default]").skip(1);
    let own = lines.by_ref().take_while(|line| !line.starts_with('['));
    let mut values = own.filter_map(|line| line.split_once('='));
    let (_, value) = values.find(|(name, _)| name.trim() == key)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// Returns the path in the canonical encoding that a store uses to verify the signature.
fn canonical_path(at: &str) -> String {
    let names = at.trim_start_matches('/').split('/');
    let names: Vec<Vec<u8>> = names
        .map(|name| percent_decode_str(name).collect())
        .collect();
    url_path(&names)
}

/// Formats a time since 1970 like `20130524T000000Z`.
fn stamp(time: Duration) -> String {
    let seconds = time.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Returns the Gregorian date `days` days after 1 January 1970. The years of the computation begin in March, so that the
/// leap day is the last day of a year.
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

    /// 2013-05-24 00:00:00 UTC, as in the examples of Amazon's S3 documentation; so are the keys below.
    const THEN: Duration = Duration::from_secs(1_369_353_600);

    fn keys() -> Keys {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        Keys::new("AKIAIOSFODNN7EXAMPLE", secret, "us-east-1")
    }

    #[test]
    fn signatures_match_amazons_examples() {
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

    /// The expected signature is from botocore 1.43.
    #[test]
    fn the_signature_of_a_put_matches_botocore() {
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
    fn dates_follow_the_gregorian_calendar() {
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
    fn keys_are_read_only_from_a_file_with_mode_600() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
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
        for incomplete in [
            "",
            "[default]\naws_access_key_id = A\n[x]\naws_secret_access_key = s\n",
        ] {
            assert!(matches!(read(incomplete, 0o600), Err(KeysError::Missing)));
        }
    }
}
