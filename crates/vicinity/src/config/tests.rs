//! Every mistake is shown with its line, column and key.

use switch::guard::{Role, Rules, VlanRules};

use super::*;

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
    assert_eq!(lan.uplink, Some(Out::Tap("vic0".to_owned())));
    let other = GOOD.replace("tap =", "interface =");
    let other = parse("test.toml", &other, None).unwrap();
    assert_eq!(
        other.networks[0].uplink,
        Some(Out::Interface("vic0".to_owned()))
    );
    for uplink in ["{}", "{ tap = \"a\", interface = \"b\" }"] {
        let text = GOOD.replace("{ tap = \"vic0\" }", uplink);
        assert!(error(&text).contains("either a `tap` or an `interface`"));
    }
    assert!(!lan.accept);
    assert_eq!(lan.workers, 1);
    assert_eq!(lan.gather_us, GATHER_US);
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
                    did you mean `mac`? The keys here are: vm, mac, socket, mode, \
                    allowed-macs, allowed-ips, router, dhcp-server, role, limits, \
                    multicast-router, mirror, vlan, trunk, native-vlan";
    assert_eq!(error(&text), expected);
}

/// Replace a part of a good configuration; the complaint must start at `place` and contain
/// every text of `parts`.
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
            &format!("name = \"lan\"\ngather-us = {micros}"),
        );
        assert_ne!(text, GOOD);
        text
    };
    for micros in [0, MAX_GATHER_US] {
        let config = parse("test.toml", &with(&micros.to_string()), None).unwrap();
        assert_eq!(config.networks[0].gather_us, micros);
    }
    for micros in ["-1", "10001", "9999999999"] {
        let error = error(&with(micros));
        assert!(
            error.contains("network.gather-us: ") && error.contains("0 (never) to 10000"),
            "{error}"
        );
    }
}

#[test]
fn how_often_a_frame_is_looked_up_is_bounded() {
    let with = |times: &str| {
        let text = format!("name = \"lan\"\nlook-ups = {times}");
        GOOD.replace("name = \"lan\"", &text)
    };
    let look_ups = |text: &str| parse("test.toml", text, None).unwrap().networks[0].look_ups;
    assert_eq!(look_ups(GOOD), None);
    for times in [1, MAX_LOOK_UPS] {
        assert_eq!(look_ups(&with(&times.to_string())), Some(times));
    }
    for times in ["-1", "0", "1001", "9999999999"] {
        let error = error(&with(times));
        assert!(
            error.contains("network.look-ups: ") && error.contains("1 to 1000"),
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
fn a_configuration_that_serves_nobody_is_refused() {
    assert!(error("").contains("there is no network"));
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
fn a_file_that_is_not_there_is_said() {
    let said = load(Some(Path::new("/nonexistent/v.toml")), None).unwrap_err();
    assert!(said.to_string().contains("/nonexistent/v.toml"), "{said}");
}

const VLANS: &str = r#"
[[network]]
name = "lan"
accept = true
uplink = { tap = "vic0" }
[[network.port]]
vm = "web"
vlan = 10
[[network.port]]
vm = "router"
trunk = [10, "20-29"]
native-vlan = 5
[[network.port]]
vm = "plain"
"#;

fn vlan_rules(text: &str) -> Vec<VlanRules> {
    let config = parse("test.toml", text, None).unwrap();
    let lan = &config.networks[0];
    let listed = lan.ports.iter().map(|port| &port.rules);
    let rules = [&lan.uplink_rules, &lan.unlisted_rules];
    let vlans = rules.into_iter().chain(listed);
    vlans.map(|rules| rules.vlan.clone().unwrap()).collect()
}

fn trunk(untagged: Option<u16>, tagged: &[(u16, u16)]) -> VlanRules {
    let tagged = tagged.to_vec();
    VlanRules { untagged, tagged }
}

/// Of a port for which nothing is said: its floods are limited.
fn plain_rules() -> Rules {
    let limits = limits::of(None, None).unwrap();
    Rules {
        limits,
        ..Rules::default()
    }
}

#[test]
fn once_one_port_has_a_vlan_all_have() {
    let [uplink, unlisted, web, router, plain] = vlan_rules(VLANS).try_into().unwrap();
    assert_eq!(uplink, trunk(Some(1), &[(1, 4094)]));
    assert_eq!(unlisted, VlanRules::access(1));
    assert_eq!(web, VlanRules::access(10));
    assert_eq!(router, trunk(Some(5), &[(10, 10), (20, 29)]));
    assert_eq!(plain, VlanRules::access(1));

    let narrow = VLANS.replace("\"vic0\"", "\"vic0\", trunk = [10]");
    assert_eq!(vlan_rules(&narrow)[0], trunk(None, &[(10, 10)]));
    let without = parse("test.toml", GOOD, None).unwrap();
    assert_eq!(without.networks[0].ports[0].rules, plain_rules());
    assert_eq!(without.networks[0].uplink_rules, Rules::default());
}

#[test]
fn vlans_are_checked_in_place() {
    let complains = |from: &str, to: &str, place: &str, parts: &[&str]| {
        let said = error(&VLANS.replace(from, to));
        assert!(said.starts_with(&format!("test.toml:{place}: ")), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} not in {said}");
        }
    };
    let number = "1 to 4094";
    complains(
        "vlan = 10",
        "vlan = 0",
        "8:8",
        &["network.port.vlan: 0 is no VLAN", number],
    );
    complains("vlan = 10", "vlan = 4095", "8:8", &["4095", number]);
    complains(
        "[10,",
        "[-1,",
        "11:10",
        &["network.port.trunk: -1 is no VLAN", number],
    );
    complains(
        "20-29",
        "29-20",
        "11:14",
        &["`29-20` is no range", "\"20-29\""],
    );
    complains("20-29", "20-5000", "11:14", &["5000", number]);
    complains("20-29", "many", "11:14", &["`many` is no range"]);
    complains("[10, \"20-29\"]", "[]", "11:9", &["a trunk of no VLAN"]);
    complains("[10, \"20-29\"]", "[true]", "11:9", &["a VLAN like 10"]);
    complains(
        "native-vlan = 5",
        "native-vlan = 5000",
        "12:15",
        &["native-vlan: 5000", number],
    );
    complains(
        "trunk = [10, \"20-29\"]",
        "",
        "12:15",
        &["`native-vlan` without `trunk`"],
    );
    complains(
        "native-vlan = 5",
        "vlan = 5",
        "12:8",
        &["exclude each other"],
    );
    complains(
        "\"vic0\"",
        "\"vic0\", trunk = [0]",
        "5:35",
        &["network.uplink.trunk: 0"],
    );
}

const GUARDED: &str = r#"
[[network]]
name = "lan"
uplink = { tap = "vic0" }
[[network.port]]
vm = "web"
mac = "52:54:00:00:00:01"
allowed-ips = ["10.0.0.5", "fd00::/64"]
dhcp-server = true
role = "private"
[[network.port]]
vm = "free"
"#;

#[test]
fn addresses_that_are_given_are_tied_to_the_mac_address() {
    let config = parse("test.toml", GUARDED, None).unwrap();
    let lan = &config.networks[0];
    let [web, free] = lan.ports.as_slice() else {
        panic!("two ports");
    };
    let source = &web.rules.source;
    assert_eq!(source.macs, [web.mac.unwrap()]);
    let ips = source.ips.as_ref().unwrap();
    let ips: Vec<_> = ips
        .iter()
        .map(|ip| (ip.address.to_string(), ip.bits))
        .collect();
    assert_eq!(
        ips,
        [("10.0.0.5".to_owned(), 32), ("fd00::".to_owned(), 64)]
    );
    assert_eq!((source.router, source.dhcp_server), (false, true));
    assert_eq!(web.rules.role, Role::Private);
    assert_eq!(lan.uplink_rules.role, Role::Promiscuous);
    assert_eq!(free.rules, plain_rules());
}

#[test]
fn groups_are_snooped_unless_it_is_said() {
    let lan = |text: &str| {
        let config = parse("test.toml", text, None).unwrap();
        let lan = &config.networks[0];
        (lan.snooping, lan.ports[0].rules.multicast_router)
    };
    assert_eq!(lan(GUARDED), (true, false));
    let off = GUARDED.replace("uplink =", "multicast-snooping = false\nuplink =");
    assert_eq!(lan(&off), (false, false));
    let router = GUARDED.replace("dhcp-server =", "multicast-router = true\ndhcp-server =");
    assert_eq!(lan(&router), (true, true));
}

#[test]
fn allowed_addresses_are_checked_in_place() {
    let complains = |from: &str, to: &str, place: &str, part: &str| {
        let said = error(&GUARDED.replace(from, to));
        assert!(
            said.starts_with(&format!("test.toml:{place}: network.port.")),
            "{said}"
        );
        assert!(said.contains(part), "{part:?} not in {said}");
    };
    complains("10.0.0.5", "10.0.0", "8:16", "`10.0.0` is no IP address");
    complains("10.0.0.5", "10.0.0.0/33", "8:16", "no IP address");
    complains(
        "mac = \"52:54:00:00:00:01\"",
        "",
        "8:15",
        "`allowed-ips` without",
    );
    complains("[\"10.0.0.5\", \"fd00::/64\"]", "[]", "8:15", "1 to 64");
    complains("allowed-ips = [", "allowed-macs = [", "8:17", "no");
    complains("\"private\"", "\"hidden\"", "10:8", "promiscuous");
}

const PLANE: &str = "[message]
uplink = { interface = \"eth1\", host-name = \"alpha\", give-up = 30 }
[[message.member]]
name = \"web\"
";

#[test]
fn the_message_planes_uplink_is_read_and_checked_in_place() {
    let read = |text: &str| parse("f", text, None).map(|config| config.message_uplink);
    let uplink = read(PLANE).unwrap().unwrap();
    assert_eq!(uplink.interface, "eth1");
    assert_eq!(uplink.host_name.as_deref(), Some("alpha"));
    assert_eq!(uplink.give_up.as_secs(), 30);
    let brief = PLANE.replace(", host-name = \"alpha\", give-up = 30", "");
    let uplink = read(&brief).unwrap().unwrap();
    assert_eq!((uplink.host_name, uplink.give_up.as_secs()), (None, 500));
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
            ["message.uplink.give-up: ", "1 or more; without it, 500"],
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
fn mirror_ports_are_read_and_checked() {
    let with = |more: &str| GOOD.replacen("vm = \"web\"", &format!("vm = \"web\"\n{more}"), 1);
    let config = parse(
        "test.toml",
        &with("mirror = [\"db\", \"vic0\", \"*\"]"),
        None,
    )
    .unwrap();
    let port = |name: &str| Mirrored::Port(name.to_owned());
    let mirror = &config.networks[0].ports[0].mirror;
    assert_eq!(*mirror, [port("db"), port("vic0"), Mirrored::All]);
    for (more, said) in [
        ("mirror = []", "it mirrors nobody"),
        ("mirror = [\"bd\"]", "did you mean db?"),
        ("mirror = [\"a b\"]", "cannot be a name"),
        ("mirror = [\"web\"]", "`web` is a mirror port, or this one"),
    ] {
        let error = error(&with(more));
        assert!(error.contains(said), "{error}");
    }
    let both = with("mirror = [\"*\"]").replace("vm = \"db\"", "vm = \"db\"\nmirror = [\"web\"]");
    assert!(error(&both).contains("is a mirror port"), "{both}");
    let mut many = GOOD.to_owned();
    for number in 0..5 {
        many += &format!("[[network.port]]\nvm = \"m{number}\"\nmirror = [\"web\"]\n");
    }
    assert!(error(&many).contains("mirrored too often"));
    // Who comes unlisted may be mirrored.
    let open = with("mirror = [\"bd\"]").replace("name = \"lan\"", "name = \"lan\"\naccept = true");
    assert!(parse("test.toml", &open, None).is_ok());
}
