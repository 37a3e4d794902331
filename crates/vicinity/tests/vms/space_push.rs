//! A space that pushes: its VM writes, a store on the host receives the files, and the slots become
//! free again.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use vm_harness::host::{self, ChildProcess};

use crate::rig::{Rig, step};
use crate::space::{guest, space, status, until, with_space};
use crate::space_nginx::serve;

/// Creates a certificate authority, and a certificate of it for 127.0.0.1.
fn certificates(folder: &Path) {
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let signed = "-CA ca.pem -CAkey ca.key -addext subjectAltName=IP:127.0.0.1 \
                  -addext basicConstraints=critical,CA:FALSE";
    for words in [
        format!("{new} -subj /CN=ours -keyout ca.key -out ca.pem"),
        format!("{new} {signed} -subj /CN=store -keyout key.pem -out cert.pem"),
    ] {
        let mut openssl = host::command("openssl");
        openssl.current_dir(folder).args(words.split_whitespace());
        host::run(openssl).unwrap();
    }
}

/// Starts a store that accepts files by TLS from clients that sign their requests.
fn store(folder: &Path, port: u16) -> ChildProcess {
    let secrets = folder.display();
    let server = format!(
        "listen 127.0.0.1:{port} ssl;\n\
         ssl_certificate {secrets}/cert.pem;\nssl_certificate_key {secrets}/key.pem;\n\
         root {secrets}/store/files;\nclient_max_body_size 0;\n\
         dav_methods PUT;\ncreate_full_put_path on;\n\
         if ($http_authorization !~ \"^AWS4-HMAC-SHA256 Credential=AKID/[0-9]+/eu-north-1/s3/\") \
         {{ return 403; }}"
    );
    serve(&folder.join("store"), &server)
}

/// Prepares a folder for a daemon's configuration that names files in the same folder.
fn prepare(folder: &Path) {
    certificates(folder);
    let keys = folder.join("keys");
    let text = "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\n";
    std::fs::write(&keys, text).unwrap();
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_vm_writes_a_store_has_it_and_slots_return() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let to = format!("https://127.0.0.1:{port}/in/");
    let place = folder.path().display();
    let config = format!(
        "[[space]]\nvm = \"red\"\nslots = 8\npush = \"{to}\"\npush-ca-file = \"{place}/ca.pem\"\n\
         push-keys-file = \"{place}/keys\"\npush-region = \"eu-north-1\"\n"
    );
    let mut rig = Rig::new(Some(&config));
    let [red] = rig.boot([with_space(&rig)]);
    step("without a store, the guest and the host get the error");
    guest(&red, "mkdir -p /s && mount -t virtiofs space /s");
    guest(
        &red,
        "head -c 700000 /dev/urandom > /tmp/r && cp /tmp/r '/s/r 1.bin'",
    );
    guest(
        &red,
        "until grep -q 'failed.*cannot reach the store' /s/.vicinity-push; do sleep 0.1; done",
    );
    until(&rig, "the error to be reported", |status| {
        let trouble = status["push_error"].as_str();
        trouble.is_some_and(|why| why.contains("cannot reach the store"))
    });
    assert!(space(&rig, &["list"]).contains(&format!("to {to}")));
    step("the store starts: it receives the file, and the space removes it");
    let nginx = store(folder.path(), port);
    guest(&red, "while test -e '/s/r 1.bin'; do sleep 0.1; done");
    let told = guest(&red, "cat /s/.vicinity-push");
    assert_eq!(told, "1 sent, 0 to send, 0 set aside");
    let files = folder.path().join("store/files/in");
    let mut cksum = host::command("sh");
    cksum.args(["-c", "cksum < 'r 1.bin'"]).current_dir(&files);
    let sum = host::run(cksum).unwrap();
    assert_eq!(sum.trim(), guest(&red, "cksum < /tmp/r"));
    step("three times as many bytes as the space has");
    guest(
        &red,
        "for i in 1 2 3 4 5 6; do cat /tmp/r /tmp/r > /s/f$i || exit 1; done",
    );
    guest(&red, "while ls /s | grep -q f; do sleep 0.1; done");
    until(&rig, "all slots return", |status| status["used"] == 0);
    let status = status(&rig);
    assert_eq!(
        (&status["pushed"], &status["slots"]),
        (&7.into(), &8.into())
    );
    assert_eq!(status["push_error"], serde_json::Value::Null);
    let length = |file| {
        std::fs::metadata(files.join(format!("f{file}")))
            .unwrap()
            .len()
    };
    assert!((1..=6).all(|file| length(file) == 1_400_000));
    drop(nginx);
    drop(red);
    rig.end(Signal::TERM);
}
