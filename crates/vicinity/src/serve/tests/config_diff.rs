//! Changes while the daemon serves.

use serde_json::{Value, json};

use super::*;
use crate::client::{ApiRequest, ClientError, Method};
use crate::config::Keys;
use crate::status::ConfigStatus;

const TWO: &str = "\
# Mine.
[[network]]
name = \"blue\"
[[network.port]]
vm = \"a\"
[[network.port]]
vm = \"b\"
mac = \"52:54:00:00:00:0b\"
[[network]]
name = \"green\"
accept = true
";

impl Daemon {
    fn file(&self) -> PathBuf {
        self.folder.path().join("test.toml")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    fn ask(&self, ask: ApiRequest) -> Result<ConfigStatus, ClientError> {
        client::request(&self.run(), ask).map(|(_, config)| config)
    }

    fn change(&self, method: Method, path: &str, keys: &Value) -> Result<ConfigStatus, String> {
        let keys: Keys = keys.as_object().unwrap().clone();
        let asked = self.ask(ApiRequest::json(method, path, &keys));
        asked.map_err(|error| error.to_string())
    }

    fn reload(&self, text: &str) -> Result<ConfigStatus, String> {
        std::fs::write(self.file(), text).unwrap();
        let asked = self.ask(ApiRequest::without_body(Method::POST, "/v1/reload"));
        asked.map_err(|error| error.to_string())
    }
}

/// Sends one frame, and waits until it was counted.
fn alive(daemon: &Daemon, vm: &str, stream: &mut UnixStream) {
    let before = daemon.port(vm).unwrap().counters.tx_frames;
    stream.write_all(b"x").unwrap();
    daemon.until_port(vm, |port| port.counters.tx_frames == before + 1);
}

#[test]
fn a_port_is_added_changed_and_removed_and_its_neighbour_stays_connected() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    daemon.until_port("a", running);
    let keys = json!({"vm": "c", "mac": "52:54:00:00:00:0c", "limits": {"broadcast": 7}});
    daemon
        .change(Method::POST, "/v1/networks/blue/ports", &keys)
        .unwrap();
    let mut c = daemon.connect("blue/c.sock");
    daemon.until_port("c", running);
    assert_eq!(daemon.networks()[0].worker.fdb_entries, 2);
    let one = "/v1/networks/blue/ports/c";
    let keys = json!({"mac": null, "role": "private"});
    daemon.change(Method::PATCH, one, &keys).unwrap();
    assert_eq!(daemon.networks()[0].worker.fdb_entries, 1);
    let changed = daemon.port("c").unwrap();
    assert_eq!((changed.mac, changed.connections), (None, 1));
    assert_eq!(changed.rules.role, switch::guard::Role::Private);
    alive(&daemon, "c", &mut c);
    daemon.change(Method::DELETE, one, &json!({})).unwrap();
    assert_eq!(c.read(&mut [0]).unwrap(), 0, "disconnected");
    assert!(daemon.port("c").is_none());
    assert!(!daemon.run().join("blue/c.sock").exists());
    assert_eq!(daemon.text(), TWO, "the file is as it was");
    alive(&daemon, "a", &mut a);
    assert_eq!(daemon.port("a").unwrap().connections, 1);
    daemon.stop();
}

#[test]
fn networks_come_and_go() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    daemon.until_port("a", running);
    let keys = json!({"name": "red", "accept": true});
    daemon.change(Method::POST, "/v1/networks", &keys).unwrap();
    let red = UnixListener::bind(daemon.run().join("red/r.sock")).unwrap();
    daemon.until_port("r", running);
    daemon
        .change(Method::DELETE, "/v1/networks/green", &json!({}))
        .unwrap();
    assert!(!daemon.run().join("green").exists());
    let names: Vec<_> = daemon.networks().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["blue", "red"]);
    drop(red);
    std::fs::remove_file(daemon.run().join("red/r.sock")).unwrap();
    alive(&daemon, "a", &mut a);
    daemon.stop();
}

#[test]
fn a_reload_changes_what_differs_and_nothing_else() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    let b = daemon.connect("blue/b.sock");
    daemon.until_port("b", running);
    // `b` listens elsewhere, so its front-end has to come again; `green` gets other workers, so
    // its data plane does.
    let text = TWO
        .replace("vm = \"b\"", "vm = \"b\"\nsocket = \"DIR/other.sock\"")
        .replace("accept = true", "accept = true\nworkers = 2")
        .replace("DIR", daemon.folder.path().to_str().unwrap());
    daemon.reload(&text).unwrap();
    assert_eq!(daemon.text(), text);
    drop(b);
    let _b = UnixStream::connect(daemon.folder.path().join("other.sock")).unwrap();
    daemon.until_port("b", running);
    alive(&daemon, "a", &mut a);
    let networks = daemon.networks();
    assert_eq!(networks[0].restarts, 0);
    until("the other data plane", || {
        let green = daemon.networks().swap_remove(1);
        green.up && green.restarts == 1
    });
    daemon.stop();
}

#[test]
fn a_refused_change_has_changed_nothing() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    daemon.until_port("a", running);
    std::fs::write(daemon.folder.path().join("taken"), "").unwrap();
    let taken = daemon.folder.path().join("taken");
    let ports = "/v1/networks/blue/ports";
    let refused = [
        (Method::POST, ports, json!({"vm": "a"}), "already"),
        (
            Method::POST,
            ports,
            json!({"vm": "c", "vlam": 1}),
            "did you mean `vlan`",
        ),
        (
            Method::POST,
            ports,
            json!({"vm": "c", "mac": "52:54:00:00:00:0b"}),
            "twice",
        ),
        (
            Method::POST,
            ports,
            json!({"vm": "c", "socket": taken}),
            "not a socket",
        ),
        (
            Method::PATCH,
            "/v1/networks/blue/ports/x",
            json!({"vlan": 1}),
            "no port x",
        ),
        (
            Method::DELETE,
            "/v1/networks/bleu",
            json!({}),
            "did you mean blue",
        ),
        (
            Method::POST,
            "/v1/networks",
            json!({"name": "n", "accept": true, "uplink": {"tap": "lo"}}),
            "lo",
        ),
    ];
    for (method, path, keys, word) in refused {
        let error = daemon.change(method, path, &keys).unwrap_err();
        assert!(error.contains(word), "{path} {keys}: {error}");
    }
    assert_eq!(daemon.text(), TWO);
    assert_eq!(daemon.ports().len(), 2);
    assert!(!daemon.run().join("n").exists());
    alive(&daemon, "a", &mut a);
    let error = daemon.reload("[[network]]\nname = 7\n").unwrap_err();
    assert!(error.contains("test.toml:2"), "{error}");
    assert_eq!(daemon.ports().len(), 2);
    daemon.stop();
}

#[test]
fn a_file_changed_by_hand_is_not_overwritten() {
    let daemon = Daemon::start(TWO);
    let mine = format!("{TWO}# more\n");
    std::fs::write(daemon.file(), &mine).unwrap();
    let error = daemon
        .change(Method::DELETE, "/v1/networks/green", &json!({}))
        .unwrap_err();
    assert!(error.contains("vicinity reload"), "{error}");
    assert_eq!(daemon.text(), mine);
    assert_eq!(daemon.networks().len(), 2);
    daemon.reload(&mine).unwrap();
    daemon
        .change(Method::DELETE, "/v1/networks/green", &json!({}))
        .unwrap();
    assert!(daemon.text().starts_with("# Mine."));
    daemon.stop();
}

#[test]
fn accepted_ports_follow_their_network_and_give_way_to_listed_ones() {
    let daemon = Daemon::start(TWO);
    let listener = UnixListener::bind(daemon.run().join("green/v.sock")).unwrap();
    daemon.until_port("v", running);
    let keys = json!({"vm": "v", "mode": "client", "role": "private"});
    daemon
        .change(Method::POST, "/v1/networks/green/ports", &keys)
        .unwrap();
    daemon.until_port("v", |port| {
        running(port) && port.rules.role == switch::guard::Role::Private
    });
    daemon
        .change(Method::DELETE, "/v1/networks/green/ports/v", &json!({}))
        .unwrap();
    daemon.until_port("v", |port| {
        running(port) && port.rules.role == switch::guard::Role::Open
    });
    let keys = json!({"accept": null, "port": null});
    let error = daemon.change(Method::PATCH, "/v1/networks/green", &keys);
    assert!(error.unwrap_err().contains("accepts no sockets"));
    drop(listener);
    std::fs::remove_file(daemon.run().join("green/v.sock")).unwrap();
    daemon.stop();
}

#[test]
fn clients_that_come_at_once_do_not_interleave() {
    let daemon = Daemon::start(TWO);
    let run = daemon.run();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let run = &run;
            scope.spawn(move || {
                let keys = json!({"vm": format!("vm{client}")});
                let keys: Keys = keys.as_object().unwrap().clone();
                let ask = ApiRequest::json(Method::POST, "/v1/networks/blue/ports", &keys);
                drop(client::request::<ConfigStatus>(run, ask).unwrap());
            });
        }
    });
    assert_eq!(daemon.ports().len(), 10);
    assert_eq!(daemon.text().matches("[[network.port]]").count(), 10);
    daemon.stop();
}

#[test]
fn invalid_requests_are_answered_and_do_not_affect_others() {
    let daemon = Daemon::start(TWO);
    let run = daemon.run();
    let talk = |words: &[u8]| {
        let mut stream = daemon.connect(CONTROL_SOCKET);
        // The daemon may answer before it has read the whole request.
        drop(stream.write_all(words));
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    assert_eq!(talk(b"nonsense\r\n\r\n"), "400");
    assert_eq!(
        talk(b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        "404"
    );
    assert_eq!(
        talk(b"PUT /v1/ports HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        "405"
    );
    let header =
        b"POST /v1/networks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    assert_eq!(
        talk(&[&header[..], b"content-length: 2\r\n\r\n[]"].concat()),
        "422"
    );
    let long = [
        b"content-length: 5000000\r\n\r\n",
        &vec![b' '; 5_000_000][..],
    ]
    .concat();
    assert_eq!(talk(&[&header[..], &long].concat()), "413");
    // A client that announces a body and sends none does not block other clients.
    let mut silent = daemon.connect(CONTROL_SOCKET);
    silent.write_all(header).unwrap();
    assert!(client::get::<Vec<PortStatus>>(&run, "/v1/ports").is_ok());
    daemon.stop();
}

#[test]
fn metrics_have_every_port() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    daemon.until_port("a", running);
    alive(&daemon, "a", &mut a);
    let (_, text) = client::text(&daemon.run(), ApiRequest::get("/metrics")).unwrap();
    let text = String::from_utf8_lossy(&text);
    for line in [
        "vicinity_network_up{network=\"blue\"} 1\n",
        "vicinity_port_running{network=\"blue\",vm=\"a\"} 1\n",
        "vicinity_port_running{network=\"blue\",vm=\"b\"} 0\n",
        "vicinity_port_frames_total{network=\"blue\",vm=\"a\",direction=\"sent\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    daemon.stop();
}

#[test]
fn a_renamed_metric_has_both_names_and_the_old_one_is_deprecated() {
    let daemon = Daemon::start(TWO);
    let (_, text) = client::text(&daemon.run(), ApiRequest::get("/metrics")).unwrap();
    let text = String::from_utf8_lossy(&text);
    for (old, new, lines) in [
        (
            "vicinity_network_residents",
            "vicinity_network_fdb_entries",
            1,
        ),
        ("vicinity_port_residents", "vicinity_port_fdb_entries", 2),
        (
            "vicinity_port_held_total",
            "vicinity_port_backpressured_total",
            2,
        ),
        (
            "vicinity_space_nonsense_requests_total",
            "vicinity_space_invalid_requests_total",
            0,
        ),
    ] {
        let help = format!("# HELP {old} Deprecated, use {new}\n");
        assert!(text.contains(&help), "{help} in {text}");
        assert!(text.contains(&format!("# HELP {new} ")), "{new} in {text}");
        let values: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with(&format!("{old}{{")))
            .collect();
        assert!(values.len() >= lines, "{old} in {text}");
        for line in values {
            assert!(text.contains(&line.replace(old, new)), "{line} in {text}");
        }
    }
    daemon.stop();
}
