//! Tests that the error message of every mistake has its line, column and key.

use std::path::Path;

use switch::limits::{MAX_LOOK_UPS, MAX_MODERATION_DELAY_US, MODERATION_DELAY_US};

use super::model::*;
use super::parse::parse;
use super::*;
use crate::runtime_paths::RUNTIME_DIR;

mod guards;

fn error(text: &str) -> String {
    parse("test.toml", text, None).unwrap_err().to_string()
}

const GOOD: &str = r#"
runtime-dir = "/run/v"
[[network]]
name = "lan"
uplink = { tap = "vic0" }
[[network.port]]
vm = "web"
mac = "52:54:00:00:00:01"
[[network.port]]
vm = "db"
socket = "/srv/db.sock"
mode = "client"
"#;

#[test]
fn a_configuration_is_read() {
    let config = parse("test.toml", GOOD, None).unwrap();
    assert_eq!(config.runtime_dir, Path::new("/run/v"));
    let [lan] = config.networks.as_slice() else {
        panic!("one network");
    };
    assert_eq!(lan.folder, Path::new("/run/v/lan"));
    assert_eq!(lan.uplink, Some(UplinkInterface::Tap("vic0".to_owned())));
    let other = GOOD.replace("tap =", "interface =");
    let other = parse("test.toml", &other, None).unwrap();
    assert_eq!(
        other.networks[0].uplink,
        Some(UplinkInterface::Interface("vic0".to_owned()))
    );
    for uplink in ["{}", "{ tap = \"a\", interface = \"b\" }"] {
        let text = GOOD.replace("{ tap = \"vic0\" }", uplink);
        assert!(error(&text).contains("either a `tap` or an `interface`, and `xdp` needs"));
    }
    assert!(!lan.accept);
    assert_eq!(lan.workers, 1);
    assert_eq!(lan.moderation_us, MODERATION_DELAY_US);
    let [web, db] = lan.ports.as_slice() else {
        panic!("two ports");
    };
    assert_eq!(web.socket, Path::new("/run/v/lan/web.sock"));
    assert_eq!(web.mode, Mode::Server);
    assert_eq!(web.mac, Some("52:54:00:00:00:01".parse().unwrap()));
    assert_eq!(db.socket, Path::new("/srv/db.sock"));
    assert_eq!(db.mode, Mode::Client);
}

#[test]
fn the_command_line_moves_the_runtime_folder() {
    let config = parse("test.toml", GOOD, Some(Path::new("/elsewhere"))).unwrap();
    assert_eq!(config.runtime_dir, Path::new("/elsewhere"));
    assert_eq!(
        config.networks[0].ports[0].socket,
        Path::new("/elsewhere/lan/web.sock")
    );
}

#[test]
fn the_default_accepts_on_its_folder() {
    let config = load(None, None).unwrap();
    assert_eq!(config.runtime_dir, Path::new(RUNTIME_DIR));
    assert_eq!(
        config.networks[0].folder,
        Path::new("/run/vicinity/default")
    );
    assert!(config.networks[0].accept);
}

#[test]
fn an_unknown_key_is_shown_whole() {
    let text = GOOD.replace("mac =", "macc =");
    let expected = "test.toml:8:1: network.port.macc: unknown key `macc`\n \
                    8 | macc = \"52:54:00:00:00:01\"\n   \
                      | ^^^^\n \
                    did you mean `mac`? The keys here are: vm, mac, socket, mode, owner, owner-label, owner-cgroup, \
                    allowed-macs, allowed-ips, router, dhcp-server, role, limits, \
                    multicast-router, mirror, vlan, trunk, native-vlan";
    assert_eq!(error(&text), expected);
}

/// Replaces a part of a valid configuration, and asserts that the error message starts at `place`
/// and contains every text of `parts`.
fn complains(from: &str, to: &str, place: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let said = error(&GOOD.replace(from, to));
    assert!(said.starts_with(&format!("test.toml:{place}: ")), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} not in {said}");
    }
}

#[test]
fn a_network_has_a_few_workers() {
    let with = |count: i64| GOOD.replace("uplink =", &format!("workers = {count}\nuplink ="));
    for count in [1, 16] {
        let config = parse("test.toml", &with(count), None).unwrap();
        assert_eq!(config.networks[0].workers as i64, count);
    }
    for count in [0, 17, -1] {
        let said = error(&with(count));
        assert!(
            said.starts_with("test.toml:5:11: network.workers: "),
            "{said}"
        );
        assert!(said.contains("1 to 16"), "{said}");
    }
}

#[test]
fn unknown_keys_are_found_in_every_table() {
    complains(
        "runtime-dir",
        "runtimedir",
        "2:1",
        &["did you mean `runtime-dir`?"],
    );
    complains(
        "uplink =",
        "uplnk =",
        "5:1",
        &["network.uplnk: ", "did you mean `uplink`?"],
    );
    complains(
        "tap =",
        "tpa =",
        "5:12",
        &["network.uplink.tpa: ", "`tap`?"],
    );
    complains(
        "[[network]]",
        "[[networks]]",
        "3:3",
        &["did you mean `network`?"],
    );
}

#[test]
fn types_and_missing_keys_name_the_key() {
    complains(
        "\"52:54:00:00:00:01\"",
        "5",
        "8:7",
        &["network.port.mac: ", "integer `5`"],
    );
    complains(
        "\"client\"",
        "\"clinet\"",
        "12:8",
        &["network.port.mode: ", "`clinet`"],
    );
    complains(
        "vm = \"db\"\n",
        "",
        "9:1",
        &["network.port: ", "missing field `vm`"],
    );
    complains("\"lan\"", "\"lan", "4:12", &["name = \"lan"]);
}

#[test]
fn names_are_checked_in_place() {
    let long = "n".repeat(65);
    complains(
        "\"lan\"",
        "\"a/b\"",
        "4:8",
        &["network.name: ", "`a/b`", "letters"],
    );
    complains("\"web\"", "\"\"", "7:6", &["network.port.vm: ", "empty"]);
    complains(
        "\"web\"",
        &format!("\"{long}\""),
        "7:6",
        &["at most 64 bytes"],
    );
    complains(
        "\"vic0\"",
        "\"a-very-long-name\"",
        "5:18",
        &["network.uplink.tap: ", "15"],
    );
}

#[test]
fn addresses_are_checked_in_place() {
    let mac = "52:54:00:00:00:01";
    complains(
        mac,
        "52:54:00:00:00",
        "8:7",
        &["network.port.mac: ", "six hexadecimal octets"],
    );
    complains(
        mac,
        "33:33:00:00:00:01",
        "8:7",
        &["33:33:00:00:00:01", "multicast"],
    );
    complains(mac, "00:00:00:00:00:00", "8:7", &["zero"]);
}

#[test]
fn what_must_differ_is_checked_with_both_places() {
    complains(
        "\"db\"",
        "\"web\"",
        "10:6",
        &["VM \"web\" is given twice", "line 7"],
    );
    let mac = "vm = \"db\"\nmac = \"52:54:00:00:00:01\"";
    complains(
        "vm = \"db\"",
        mac,
        "11:7",
        &["MAC address 52:54:00:00:00:01 is given twice", "line 8"],
    );
    complains(
        "/srv/db.sock",
        "/run/v/lan/web.sock",
        "11:10",
        &["socket \"/run/v/lan/web.sock\" is given twice"],
    );
    let twice = format!("{GOOD}[[network]]\nname = \"lan\"\naccept = true\n");
    assert!(error(&twice).starts_with("test.toml:14:8: network.name: "));
}

#[test]
fn how_long_frames_gather_is_bounded() {
    let with = |micros: &str| {
        let text = GOOD.replace(
            "name = \"lan\"",
            &format!("name = \"lan\"\nmoderation-us = {micros}"),
        );
        assert_ne!(text, GOOD);
        text
    };
    for micros in [0, MAX_MODERATION_DELAY_US] {
        let config = parse("test.toml", &with(&micros.to_string()), None).unwrap();
        assert_eq!(config.networks[0].moderation_us, micros);
    }
    for micros in ["-1", "10001", "9999999999"] {
        let error = error(&with(micros));
        assert!(
            error.contains("network.moderation-us: ") && error.contains("0 (never) to 10000"),
            "{error}"
        );
    }
}

#[test]
fn how_often_a_frame_is_looked_up_is_bounded() {
    let with = |times: &str| {
        let text = format!("name = \"lan\"\nfdb-lookups = {times}");
        GOOD.replace("name = \"lan\"", &text)
    };
    let fdb_lookups = |text: &str| parse("test.toml", text, None).unwrap().networks[0].fdb_lookups;
    assert_eq!(fdb_lookups(GOOD), None);
    for times in [1, MAX_LOOK_UPS] {
        assert_eq!(fdb_lookups(&with(&times.to_string())), Some(times));
    }
    for times in ["-1", "0", "1001", "9999999999"] {
        let error = error(&with(times));
        assert!(
            error.contains("network.fdb-lookups: ") && error.contains("1 to 1000"),
            "{error}"
        );
    }
}

#[test]
fn paths_are_checked_in_place() {
    complains(
        "\"/srv/db.sock\"",
        "\"db.sock\"",
        "11:10",
        &["not absolute"],
    );
    let long = format!("\"/{}\"", "x".repeat(MAX_SOCKET_PATH));
    complains(
        "\"/srv/db.sock\"",
        &long,
        "11:10",
        &["too long", "107 bytes"],
    );
    complains("\"/run/v\"", "\"v\"", "2:15", &["not absolute"]);
}

#[test]
fn a_configuration_without_any_object_is_refused() {
    assert!(error("").contains("has no network, member, trust group, space or socket device"));
    let empty = error("\n[[network]]\nname = \"lan\"\n");
    assert!(empty.starts_with("test.toml:2:1: network: "), "{empty}");
    assert!(empty.contains("accept = true"), "{empty}");
}

#[test]
fn a_network_has_at_most_1024_ports() {
    let ports = |count: usize, uplink: &str| {
        let mut text = format!("[[network]]\nname = \"lan\"\n{uplink}\n");
        for port in 0..count {
            text += &format!("[[network.port]]\nvm = \"vm{port}\"\n");
        }
        parse("test.toml", &text, None)
    };
    assert!(ports(1024, "").is_ok());
    let said = ports(1025, "").unwrap_err().to_string();
    assert!(
        said.starts_with("test.toml:2052:1: network.port: "),
        "{said}"
    );
    assert!(ports(1023, "uplink = { tap = \"v\" }").is_ok());
    assert!(ports(1024, "uplink = { tap = \"v\" }").is_err());
}

#[test]
fn columns_count_characters_and_long_files_have_wide_margins() {
    let text = format!(
        "{}[[network]]\nname = \"ä\" # ü\nnme = 1\n",
        "\n".repeat(98)
    );
    let said = error(&text);
    assert!(said.contains("\n 101 | nme = 1\n     | ^^^\n"), "{said}");
}

#[test]
fn a_missing_file_has_an_error_with_its_path() {
    let said = load(Some(Path::new("/nonexistent/v.toml")), None).unwrap_err();
    assert!(said.to_string().contains("/nonexistent/v.toml"), "{said}");
}

const PLANE: &str = "[message]
uplink = { interface = \"eth1\", host-name = \"alpha\", peer-timeout = 30 }
[[message.member]]
name = \"web\"
";

#[test]
fn the_message_planes_uplink_is_read_and_checked_in_place() {
    let read = |text: &str| parse("f", text, None).map(|config| config.message_uplink);
    let uplink = read(PLANE).unwrap().unwrap();
    assert_eq!(uplink.interface, "eth1");
    assert_eq!(uplink.host_name.as_deref(), Some("alpha"));
    assert_eq!(uplink.peer_timeout.as_secs(), 30);
    let brief = PLANE.replace(", host-name = \"alpha\", peer-timeout = 30", "");
    let uplink = read(&brief).unwrap().unwrap();
    assert_eq!(
        (uplink.host_name, uplink.peer_timeout.as_secs()),
        (None, 500)
    );
    for (from, to, parts) in [
        (
            "\"eth1\"",
            "\"a-very-long-name\"",
            ["message.uplink.interface: ", "15"],
        ),
        (
            "\"alpha\"",
            "\"a/b\"",
            ["message.uplink.host-name: ", "letters"],
        ),
        (
            "30",
            "0",
            [
                "message.uplink.peer-timeout: ",
                "write 1 or more; the default is 500",
            ],
        ),
        (
            "host-name",
            "hostname",
            ["message.uplink.hostname: ", "did you mean `host-name`?"],
        ),
        (
            "\"web\"",
            "\"uplink\"",
            ["message.member.name: ", "another name"],
        ),
    ] {
        let said = error(&PLANE.replace(from, to));
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn the_message_planes_unix_group_needs_the_host_and_its_sockets_need_the_group() {
    let group = "[message]\nunix-group = \"4711\"";
    let with = |group: &str| PLANE.replace("[message]", group);
    let host = "[[message.member]]\nname = \"host\"\n";
    let sockets = |text: &str| text.replace("= 30", "= 30, program-sockets = true");
    let of = |text: &str| parse("f", text, None).unwrap();
    let config = of(&sockets(&format!("{}{host}", with(group))));
    assert_eq!(config.message_unix_group, Some(4711));
    assert!(config.message_uplink.unwrap().has_program_sockets);
    let config = of(&format!("{PLANE}{host}"));
    assert_eq!(config.message_unix_group, None);
    assert!(!config.message_uplink.unwrap().has_program_sockets);
    for (text, parts) in [
        (
            with(group),
            ["message.unix-group: ", "with the name `host`"],
        ),
        (
            format!("{}{host}", with("[message]\nunix-group = \"no such\"")),
            ["message.unix-group: ", "no group `no such`"],
        ),
        (
            sockets(&format!("{PLANE}{host}")),
            ["message.uplink.program-sockets: ", "add `unix-group`"],
        ),
    ] {
        let said = error(&text);
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
