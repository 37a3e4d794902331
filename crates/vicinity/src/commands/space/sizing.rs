//! `vicinity space top` and `vicinity space explain`: the sizes of spaces, and the reasons for
//! them.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use space::demand::Bottleneck;
use space::estimator::Window;
use space::resize_policy::Reason;

use crate::client::{self, ClientError};
use crate::commands::output;
use crate::status::{ControlStatus, DecisionStatus, SpaceStatus};
use crate::table::{self, Align};

/// Time between two updates.
const PERIOD: Duration = Duration::from_secs(1);

/// Clears the screen and moves the cursor to its first position (ECMA-48).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// From this stretch on, the objectives are out of reach, or the controller does not know how many
/// slots they need.
const MAX_STRETCH: f64 = 1e3;

/// The message if the controller does not size any space.
const FIXED: &str = "the controller does not size any space; set `space-budget`, and remove `slots` from the \
    spaces (see docs/space.md)\n";

/// Prints the state of each space, once or until a signal interrupts the command.
pub(crate) fn top(runtime_dir: &Path, once: bool, json: bool) -> Result<String, ClientError> {
    loop {
        let sample = sample(runtime_dir)?;
        let text = match json {
            true => output::as_json_line(&sample),
            false => sample.to_string(),
        };
        if once {
            return Ok(text);
        }
        let mut out = std::io::stdout().lock();
        let clear = if out.is_terminal() && !json {
            CLEAR
        } else {
            ""
        };
        // The reader has closed the pipe.
        if write!(out, "{clear}{text}")
            .and_then(|()| out.flush())
            .is_err()
        {
            return Ok(String::new());
        }
        drop(out);
        std::thread::sleep(PERIOD);
    }
}

/// What there is to see at one time.
#[derive(Serialize)]
struct Sample {
    spaces: Vec<SpaceStatus>,
    control: Option<ControlStatus>,
}

fn sample(runtime_dir: &Path) -> Result<Sample, ClientError> {
    Ok(Sample {
        spaces: client::get(runtime_dir, "/v1/spaces")?,
        control: client::get(runtime_dir, "/v1/space-control")?,
    })
}

impl fmt::Display for Sample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (Align::Left, Align::Right);
        let head = [
            ("VM", left),
            ("SLOTS", right),
            ("USED", right),
            ("RETAINED", right),
            ("IN/s", right),
            ("OUT/s", right),
            ("BLOCKED %", right),
            ("WAITING", right),
            ("CLIENTS", right),
            ("SENT", right),
            ("DECISION", left),
        ];
        let control = self.control.as_ref();
        let rows: Vec<_> = self
            .spaces
            .iter()
            .map(|space| row(space, control))
            .collect();
        let sum = control.map_or(String::new(), summary);
        write!(out, "{}{sum}", table::format(&head, &rows))
    }
}

fn row(space: &SpaceStatus, control: Option<&ControlStatus>) -> Vec<String> {
    let figures = &space.figures;
    let mut controlled = control.into_iter().flat_map(|control| &control.spaces);
    let controlled = controlled.find(|controlled| controlled.vm == space.vm);
    let window = controlled.map(|controlled| &controlled.window);
    let window = window.filter(|window| window.seconds > 0.0);
    let told = |figure: fn(&Window) -> f64| {
        window.map_or("-".to_owned(), |window| format!("{:.1}", figure(window)))
    };
    vec![
        space.vm.clone(),
        figures.slots.to_string(),
        figures.used.to_string(),
        window.map_or("-".to_owned(), |window| window.retained.to_string()),
        told(|window| window.arrived as f64 / window.seconds),
        told(|window| window.released as f64 / window.seconds),
        told(|window| 100.0 * window.blocked / window.seconds),
        figures.waiting.to_string(),
        figures.clients.to_string(),
        table::bytes(figures.sent),
        match controlled {
            Some(controlled) => controlled.reason.map_or(String::new(), word),
            None => "fixed".to_owned(),
        },
    ]
}

fn summary(control: &ControlStatus) -> String {
    let stretch = match control.stretch < MAX_STRETCH {
        true => format!("the times of objectives are {:.2} times as long", control.stretch),
        false => "the budget cannot meet the objectives, or the controller does not know yet how many slots they \
            need".to_owned(),
    };
    format!(
        "\nbudget {} slots, {} free; {stretch}; one more slot would avoid waiting for {:.3} slots/s{}\n",
        control.budget,
        control.free,
        control.price,
        match control.pressure {
            true => "; the host is short of memory, so no space grows",
            false => "",
        }
    )
}

/// Returns the decisions about a VM's space, or all decisions.
pub(crate) fn explain(
    runtime_dir: &Path,
    vm: Option<&str>,
    json: bool,
) -> Result<String, ClientError> {
    let control: Option<ControlStatus> = client::get(runtime_dir, "/v1/space-control")?;
    let Some(mut control) = control else {
        return Ok(FIXED.to_owned());
    };
    let wanted = |of: &str| vm.is_none_or(|vm| vm == of);
    control.decisions.retain(|made| wanted(&made.vm));
    control.spaces.retain(|space| wanted(&space.vm));
    if json {
        return Ok(output::as_json(&control));
    }
    let (left, right) = (Align::Left, Align::Right);
    let head = [
        ("AGO", right),
        ("VM", left),
        ("FROM", right),
        ("TO", right),
        ("REASON", left),
        ("EXPECTED", right),
        ("", left),
    ];
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs_f64();
    let line = |made: &DecisionStatus| {
        vec![
            format!("{:.0} s", (now - made.at).max(0.0)),
            made.vm.clone(),
            made.before.to_string(),
            made.slots.to_string(),
            word(made.reason),
            made.predicted
                .map_or("-".to_owned(), |time| format!("{:.0} ms", time * 1e3)),
            meaning(made.reason, made.bottleneck),
        ]
    };
    let rows: Vec<_> = control.decisions.iter().map(line).collect();
    Ok(format!(
        "{}{}",
        table::format(&head, &rows),
        summary(&control)
    ))
}

/// Returns the name of a reason as in JSON.
fn word(reason: Reason) -> String {
    let json = serde_json::to_value(reason).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

fn meaning(reason: Reason, bottleneck: Option<Bottleneck>) -> String {
    let text = match reason {
        Reason::GrowSlo => "its objective needs more slots",
        Reason::GrowBlocked => "its writes wait for slots",
        Reason::ShrinkSlack => "it needs fewer slots",
        Reason::ShrinkLent => "another space needs the slots now",
        Reason::HoldDeadband => "the change would be too small (dead band)",
        Reason::HoldChurn => "it was resized too often in the last minute",
        Reason::HoldAgree => "it will shrink if the next measurements agree",
        Reason::HoldNoLeverage => "the model predicts no gain from more slots",
        Reason::HoldBudget => "the budget has no free slots",
        Reason::HoldPressure => "the host is short of memory",
        Reason::HoldUnknown => "there are too few measurements for a prediction",
        Reason::NotAMemoryProblem => "no number of slots meets its objective",
        Reason::Degraded => "the model was wrong too often: only a space whose writes wait grows",
    };
    match bottleneck {
        None => text.to_owned(),
        Some(Bottleneck::Compute) => format!("{text}; the guest computes too slowly"),
        Some(Bottleneck::Link) => {
            format!(
                "{text}; slots become free too slowly: clients fetch, or the guest removes files, too \
                slowly"
            )
        }
    }
}
