//! Converts the keys that limit what ports and uplinks may send and receive to [`LimitRules`].

use switch::guard::{FloodRules, LimitRules, RateRules};
use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;

/// Default limits of the floods that a port may send in a second. A VM in normal operation sends a
/// few frames of ARP, DHCP and neighbour discovery; with hundreds of containers, some hundred
/// frames a second. The limits leave room for a video stream by multicast, and for a one-way stream
/// to an address that the switch has not yet learnt.
const FLOODS: FloodRules = FloodRules {
    broadcast: Some(1000),
    multicast: Some(10_000),
    unknown: Some(10_000),
};

/// Rates in bytes a second: 8 kbit/s to 1 Tbit/s.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=125e9;

/// Most frames a second.
const MAX_FRAMES: i64 = 1_000_000_000;

/// Bursts in milliseconds. A burst shorter than the worker's pauses would lower the rate.
const BURSTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// Returns the limits of a port from the keys of the port and those of its network.
pub(super) fn of(
    port: Option<&file::Limits>,
    network: Option<&file::Limits>,
) -> Result<LimitRules, ValueError> {
    let mut rules = LimitRules {
        floods: FLOODS,
        ..LimitRules::default()
    };
    for limits in [network, port].into_iter().flatten() {
        let rates = [
            (&limits.send, &mut rules.send),
            (&limits.receive, &mut rules.receive),
        ];
        for (written, rate) in rates {
            if let Some(written) = written {
                *rate = rates_of(written)?;
            }
        }
        let floods = [
            &limits.broadcast,
            &limits.multicast,
            &limits.unknown_unicast,
        ];
        set_floods(&mut rules.floods, floods)?;
    }
    Ok(rules)
}

/// Returns the limits of an uplink with these keys. They limit only its floods, and only if a key
/// says so: the rates of an uplink are those of the interface, which the kernel shapes.
pub(super) fn of_uplink(uplink: &file::Uplink) -> Result<LimitRules, ValueError> {
    let mut rules = LimitRules::default();
    if let Some(limits) = &uplink.limits {
        let floods = [
            &limits.broadcast,
            &limits.multicast,
            &limits.unknown_unicast,
        ];
        set_floods(&mut rules.floods, floods)?;
    }
    Ok(rules)
}

/// Sets those limits of floods that have a key: broadcasts, multicasts, frames to unknown
/// addresses.
fn set_floods(
    rules: &mut FloodRules,
    written: [&Option<Spanned<file::Frames>>; 3],
) -> Result<(), ValueError> {
    let rules = [
        &mut rules.broadcast,
        &mut rules.multicast,
        &mut rules.unknown,
    ];
    for (written, frames) in written.into_iter().zip(rules) {
        if let Some(written) = written {
            *frames = flood(written)?;
        }
    }
    Ok(())
}

fn rates_of(written: &file::Rates) -> Result<RateRules, ValueError> {
    let default = RateRules::default();
    Ok(RateRules {
        bytes: written.rate.as_ref().map(rate).transpose()?,
        frames: written.frames.as_ref().map(frames).transpose()?,
        burst_ms: match &written.burst {
            Some(text) => burst(text)?,
            None => default.burst_ms,
        },
    })
}

/// Parses a rate like `100 Mbit/s`, and returns it in bytes a second.
pub(super) fn rate(text: &Spanned<String>) -> Result<u64, ValueError> {
    const UNITS: [(&str, f64); 8] = [
        ("bit/s", 0.125),
        ("kbit/s", 125.0),
        ("Mbit/s", 125e3),
        ("Gbit/s", 125e6),
        ("B/s", 1.0),
        ("kB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
    ];
    let bytes = with_unit(text.get_ref(), &UNITS).filter(|bytes| RATES.contains(bytes));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within RATES"
    )]
    bytes.map(|bytes| bytes as u64).ok_or_else(|| {
        let message = format!("`{}` is not a rate", text.get_ref().escape_debug());
        let help = "write it like \"100 Mbit/s\", \"1.5 Gbit/s\" or \"20 MB/s\"; from 8 kbit/s \
                    to 1000 Gbit/s";
        ValueError::new(text.span(), message, help)
    })
}

/// Parses a duration like `100 ms`, and returns it in milliseconds.
fn burst(text: &Spanned<String>) -> Result<u32, ValueError> {
    let time = with_unit(text.get_ref(), &[("ms", 1.0), ("s", 1e3)]);
    let whole = time.and_then(|time| BURSTS.into_iter().find(|ms| f64::from(*ms) == time));
    whole.ok_or_else(|| {
        let message = format!("`{}` is not a burst", text.get_ref().escape_debug());
        let help = "write the time in which the rate allows as much as may pass at once: \"1 ms\" to \"10 s\", \
            in whole milliseconds";
        ValueError::new(text.span(), message, help)
    })
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at_checked(number_ends)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.parse::<f64>().ok()? * factor)
}

fn frames(number: &Spanned<i64>) -> Result<u64, ValueError> {
    let frames = u64::try_from(*number.get_ref()).ok();
    let frames = frames.filter(|_| (1..=MAX_FRAMES).contains(number.get_ref()));
    frames.ok_or_else(|| {
        let message = format!("{} is not a number of frames a second", number.get_ref());
        ValueError::new(number.span(), message, format!("write 1 to {MAX_FRAMES}"))
    })
}

fn flood(written: &Spanned<file::Frames>) -> Result<Option<u64>, ValueError> {
    match written.get_ref() {
        file::Frames::Number(number) => frames(&Spanned::new(written.span(), *number)).map(Some),
        file::Frames::Word(word) if word == "unlimited" => Ok(None),
        file::Frames::Word(word) => {
            let message = format!("`{}` is not a limit", word.escape_debug());
            let help = "write frames a second, like 1000, or \"unlimited\"";
            Err(ValueError::new(written.span(), message, help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse::parse;

    const LIMITED: &str = r#"
[[network]]
name = "lan"
accept = true
limits = { send = { rate = "1 Gbit/s" }, broadcast = 200 }
[[network.port]]
vm = "web"
[network.port.limits]
send = { rate = "12.5 Mbit/s", frames = 2000, burst = "50 ms" }
receive = { frames = 9 }
multicast = "unlimited"
[[network.port]]
vm = "free"
limits = { send = {} }
"#;

    fn limits(text: &str) -> Vec<LimitRules> {
        let config = parse("test.toml", text, None).unwrap();
        let lan = &config.networks[0];
        let listed = lan.ports.iter().map(|port| port.rules.limits);
        [lan.unlisted_rules.limits, lan.uplink_rules.limits]
            .into_iter()
            .chain(listed)
            .collect()
    }

    #[test]
    fn a_port_has_its_networks_limits_unless_it_has_its_own() {
        let [unlisted, uplink, web, free] = limits(LIMITED).try_into().unwrap();
        let floods = FloodRules {
            broadcast: Some(200),
            ..FLOODS
        };
        let send = RateRules {
            bytes: Some(125_000_000),
            ..RateRules::default()
        };
        let receive = RateRules::default();
        assert_eq!(uplink, LimitRules::default());
        let expected = LimitRules {
            send,
            receive,
            floods,
        };
        assert_eq!(unlisted, expected);
        assert_eq!(
            free,
            LimitRules {
                send: receive,
                ..expected
            }
        );
        let send = RateRules {
            bytes: Some(1_562_500),
            frames: Some(2000),
            burst_ms: 50,
        };
        let receive = RateRules {
            frames: Some(9),
            ..receive
        };
        let floods = FloodRules {
            multicast: None,
            ..floods
        };
        assert_eq!(
            web,
            LimitRules {
                send,
                receive,
                floods
            }
        );
        let plain = limits("[[network]]\nname = \"lan\"\naccept = true\n");
        assert_eq!(plain[0].floods, FLOODS);
    }

    #[test]
    fn an_uplink_floods_without_limit_unless_a_key_sets_one() {
        let with = |limits: &str| {
            let uplink = format!("name = \"lan\"\nuplink = {{ tap = \"vic0\"{limits} }}");
            LIMITED.replace("name = \"lan\"", &uplink)
        };
        assert_eq!(limits(&with(""))[1], LimitRules::default());
        let said = limits(&with(
            ", limits = { broadcast = 300, multicast = \"unlimited\" }",
        ));
        let floods = FloodRules {
            broadcast: Some(300),
            ..FloodRules::default()
        };
        assert_eq!(said[1].floods, floods);
        let diagnostic = parse("test.toml", &with(", limits = { send = {} }"), None).unwrap_err();
        let diagnostic = diagnostic.to_string();
        assert!(diagnostic.contains("the keys here are: broadcast, multicast, unknown-unicast"));
    }

    #[test]
    fn rates_have_units() {
        for (text, bytes) in [
            ("8 kbit/s", 1000),
            ("8kbit/s", 1000),
            ("10 Mbit/s", 1_250_000),
            ("2.5 Gbit/s", 312_500_000),
            ("1000 Gbit/s", 125_000_000_000),
            ("64000 bit/s", 8000),
            ("20 MB/s", 20_000_000),
            ("1.5 kB/s", 1500),
            ("1 GB/s", 1_000_000_000),
            ("5000 B/s", 5000),
        ] {
            let said = LIMITED.replace("12.5 Mbit/s", text);
            assert_eq!(limits(&said)[2].send.bytes, Some(bytes), "{text}");
        }
    }

    #[test]
    fn limits_are_checked_in_place() {
        let complains = |from: &str, to: &str, place: &str, parts: [&str; 2]| {
            let said = parse("test.toml", &LIMITED.replace(from, to), None);
            let said = said.unwrap_err().to_string();
            assert!(said.starts_with(&format!("test.toml:{place}: ")), "{said}");
            for part in parts {
                assert!(said.contains(part), "{part:?} not in {said}");
            }
        };
        for text in [
            "12.5",
            "fast",
            "-1 Mbit/s",
            "7 kbit/s",
            "1001 Gbit/s",
            "1.2.3 MB/s",
            "9 mb/s",
        ] {
            let message = format!("port.limits.send.rate: `{text}` is not a rate");
            complains("12.5 Mbit/s", text, "9:17", [&message, "100 Mbit/s"]);
        }
        for text in ["0 ms", "1.5 ms", "11 s", "50", "50 min"] {
            let message = format!("burst: `{text}` is not a burst");
            complains("50 ms", text, "9:55", [&message, "10 s"]);
        }
        complains(
            "2000,",
            "0,",
            "9:41",
            ["send.frames: 0 is not a number", "write 1 to"],
        );
        complains(
            "200 }",
            "-1 }",
            "5:54",
            ["network.limits.broadcast: -1", "write 1 to"],
        );
        complains(
            "\"unlimited\"",
            "\"much\"",
            "11:13",
            ["`much` is not a limit", "unlimited"],
        );
        complains(
            "multicast =",
            "multi =",
            "11:1",
            ["unknown key `multi`", "multicast"],
        );
        complains(
            "frames = 9",
            "bits = 9",
            "10:13",
            ["unknown key `bits`", "rate, frames, burst"],
        );
    }
}
