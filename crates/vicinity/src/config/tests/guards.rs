//! Tests of what ports may send and receive, and of which ports are mirrored.

use switch::guard::{Role, Rules, VlanRules};

use super::parse;
use super::*;

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

/// Returns the rules of a port without keys for rules: only its floods are limited.
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
        &["network.port.vlan: 0 is not a VLAN", number],
    );
    complains("vlan = 10", "vlan = 4095", "8:8", &["4095", number]);
    complains(
        "[10,",
        "[-1,",
        "11:10",
        &["network.port.trunk: -1 is not a VLAN", number],
    );
    complains(
        "20-29",
        "29-20",
        "11:14",
        &["`29-20` is not a range", "\"20-29\""],
    );
    complains("20-29", "20-5000", "11:14", &["5000", number]);
    complains("20-29", "many", "11:14", &["`many` is not a range"]);
    complains("[10, \"20-29\"]", "[]", "11:9", &["the trunk has no VLAN"]);
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
    complains(
        "10.0.0.5",
        "10.0.0",
        "8:16",
        "`10.0.0` is not an IP address",
    );
    complains("10.0.0.5", "10.0.0.0/33", "8:16", "not an IP address");
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
        ("mirror = []", "the mirror port mirrors no port"),
        ("mirror = [\"bd\"]", "did you mean db?"),
        ("mirror = [\"a b\"]", "cannot be a name"),
        (
            "mirror = [\"web\"]",
            "`web` is a mirror port, or this port itself",
        ),
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
    assert!(error(&many).contains("too many mirror ports"));
    // An unlisted port may be mirrored.
    let open = with("mirror = [\"bd\"]").replace("name = \"lan\"", "name = \"lan\"\naccept = true");
    assert!(parse("test.toml", &open, None).is_ok());
}
