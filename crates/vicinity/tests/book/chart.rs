//! The chart of the README, `docs/charts/data-path.svg`, drawn from the committed results.

use std::fmt::Write as _;

use crate::results::{list, number, read, tcp};

/// The x coordinate at which bars begin, and the width of the longest.
const LEFT: f64 = 190.0;
const LONGEST: f64 = 420.0;

/// Two bars, one below the other: Vicinity's and its peer's.
struct Pair {
    label: String,
    /// The value and the peer's, in the unit of the group.
    values: [f64; 2],
    peer: &'static str,
    /// The labels behind the bars.
    texts: [String; 2],
}

/// Pairs that share an axis.
struct Group {
    title: &'static str,
    pairs: Vec<Pair>,
}

/// Returns the chart as the text of an SVG file.
pub(crate) fn data_path() -> String {
    let groups = [frames(), stream(), round_trip()];
    let mut body = String::new();
    let mut y = 64.0;
    for group in &groups {
        heading(&mut body, y, group.title);
        y += 14.0;
        let longest = group.pairs.iter().flat_map(|pair| pair.values);
        let longest = longest.fold(0.0, f64::max);
        for pair in &group.pairs {
            draw(&mut body, y, pair, longest);
            y += 50.0;
        }
        y += 26.0;
    }
    let height = y + 22.0;
    let [frames, tcp] = ["switch.json", "message-vms.json"].map(measured);
    let notes = [
        format!("Frames: results/switch.json.gz, {frames}, one CPU for the switch, no VMs."),
        format!("TCP: results/message-vms.json.gz, {tcp}, VMs emulated by QEMU without KVM (TCG)."),
    ];
    for (line, note) in notes.iter().enumerate() {
        let at = if line == 0 { y } else { y + 16.0 };
        let _ = writeln!(
            body,
            "<text x=\"24\" y=\"{at}\" class=\"note\">{note}</text>"
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" width=\"800\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">Vicinity beside OVS-DPDK and beside tap and bridge</title>\n\
         <style>\n\
         text {{ font-family: 'DejaVu Sans', Verdana, sans-serif; fill: #1f2328; }}\n\
         .heading {{ font-size: 15px; font-weight: bold; }}\n\
         .label {{ font-size: 14px; }}\n\
         .note {{ font-size: 12px; fill: #57606a; }}\n\
         .ours {{ fill: #1a7f5a; }}\n\
         .theirs {{ fill: #a8b3bf; }}\n\
         </style>\n\
         <rect width=\"800\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"24\" y=\"32\" class=\"label\">\
         <tspan font-weight=\"bold\" font-size=\"17\">Vicinity beside OVS-DPDK and tap + bridge\
         </tspan></text>\n{body}</svg>\n"
    )
}

/// Returns how often and on which processor a result was measured.
fn measured(name: &str) -> String {
    let results = read(name);
    let rounds = list(&results, "samples").iter();
    let rounds = rounds.filter_map(|it| it["round"].as_u64()).max();
    let processor = results["machine"]["processor"].as_str().unwrap();
    format!("medians of {} rounds, {processor}", rounds.unwrap())
}

/// Writes the title of a group.
fn heading(body: &mut String, y: f64, title: &str) {
    let _ = writeln!(
        body,
        "<text x=\"24\" y=\"{y}\" class=\"heading\">{title}</text>"
    );
}

/// Writes the two bars of a pair, with their labels and values.
fn draw(body: &mut String, y: f64, pair: &Pair, longest: f64) {
    let _ = writeln!(
        body,
        "<text x=\"24\" y=\"{}\" class=\"label\">{}</text>",
        y + 25.0,
        pair.label
    );
    let names = ["Vicinity", pair.peer];
    let classes = ["ours", "theirs"];
    for bar in 0..2 {
        let top = if bar == 0 { y } else { y + 21.0 };
        let width = pair.values[bar] / longest * LONGEST;
        let _ = writeln!(
            body,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"19\" class=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" class=\"label\">{} {}</text>",
            classes[bar],
            LEFT + width + 8.0,
            top + 14.5,
            names[bar],
            pair.texts[bar],
        );
    }
}

/// Returns frames a second beside OVS-DPDK.
fn frames() -> Group {
    let results = read("switch.json");
    let all = list(&results, "comparisons").iter();
    let shown = all.filter(|it| [64, 1500].contains(&it["size"].as_u64().unwrap()));
    let pairs = shown.map(|it| {
        let values = ["/vicinity", "/ovs_dpdk"];
        let values = values.map(|who| number(it, &format!("{who}/frames_per_s")) / 1e6);
        Pair {
            label: format!("{} B frames", it["size"]),
            values,
            peer: "OVS-DPDK",
            texts: values.map(|value| format!("{value:.1} M/s")),
        }
    });
    Group {
        title: "Frames a second on one CPU (longer is better)",
        pairs: pairs.collect(),
    }
}

/// Returns a TCP stream between two VMs beside that over tap and bridge.
fn stream() -> Group {
    let values = ["switch", "bridge"].map(|channel| tcp(channel, "mb_s"));
    Group {
        title: "TCP between two emulated VMs (TCG): throughput (longer is better)",
        pairs: vec![Pair {
            label: "one stream".to_owned(),
            values,
            peer: "tap + bridge",
            texts: values.map(|value| format!("{value:.0} MB/s")),
        }],
    }
}

/// Returns a round trip between two VMs beside that over tap and bridge.
fn round_trip() -> Group {
    let values = ["switch", "bridge"].map(|channel| tcp(channel, "round_trip_us"));
    Group {
        title: "TCP between two emulated VMs (TCG): round trip (shorter is better)",
        pairs: vec![Pair {
            label: "64 B there and back".to_owned(),
            values,
            peer: "tap + bridge",
            texts: values.map(|value| format!("{value:.0} µs")),
        }],
    }
}
