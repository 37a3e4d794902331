//! Measures the memory that a VM's space takes, by the rate of the VM's jobs (paper 003, Fig. 8).
//!
//! Each job writes a file into the space, and removes it a second later, as if it had been sent. Meanwhile the lab asks
//! the daemon for the size of the space, and once more after a time without jobs. Another VM,
//! whose jobs have a constant rate, has a space under the same budget.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::pace::Pace;
use crate::sample::{Cell, Values, values};
use crate::testbed::Testbed;
use report::inference::mean;
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

/// Seconds of jobs before the measurement, because the controller decides only every five seconds.
const WARM_UP_SECONDS: u32 = 6;

/// Time without jobs, after which the space has returned its memory.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Rate of the other VM's jobs, 1/s.
const OTHER_VM_RATE: &str = "4";

/// Interval of the requests to the daemon.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

const LIMIT: Duration = Duration::from_secs(120);

/// Slots of the space without the controller: more than the jobs use.
const FIXED: &str = "slots=48";

/// Runs jobs at the given rate for the given number of seconds. Prints the mean number of milliseconds in which a job
/// wrote its file.
const JOBS: &str = r#"rm -f /space/piece*
begin=${EPOCHREALTIME/./} count=0 spent=0
while [ $count -lt $(($0 * $1)) ]; do
    now=${EPOCHREALTIME/./} due=$((begin + count * 1000000 / $0))
    [ $now -ge $due ] || sleep $(printf "0.%06d" $((due - now < 999999 ? due - now : 999999)))
    now=${EPOCHREALTIME/./}
    head -c 524288 /dev/zero >/space/piece$count || exit 1
    spent=$((spent + ${EPOCHREALTIME/./} - now))
    (sleep 1; rm -f /space/piece$count) >/dev/null 2>&1 &
    count=$((count + 1))
done
wait
echo $((spent / count))"#;

/// The size of the space at one time.
struct SizeSample {
    at: Duration,
    slots: f64,
    used: f64,
    mib: f64,
}

impl SizeSample {
    fn of(space: &Value, began: Instant) -> Result<Self> {
        let field = |name: &str| space.get(name).and_then(Value::as_f64);
        let unreadable = || Error::unreadable("the figures of a space", &space.to_string());
        Ok(Self {
            at: began.elapsed(),
            slots: field("slots").ok_or_else(unreadable)?,
            used: field("used").ok_or_else(unreadable)?,
            mib: field("memory").ok_or_else(unreadable)? / f64::from(1 << 20),
        })
    }
}

/// Measures jobs at a rate, with or without the controller.
pub(super) fn measure(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let (vm, other) = (testbed.vm(1)?, testbed.vm(2)?);
    for vm in [vm, other] {
        vm.check(super::space::MOUNT, LIMIT)?;
    }
    let slots = match cell.level("control") {
        "on" => "slots=",
        _ => FIXED,
    };
    testbed.size_space(slots)?;
    let seconds = WARM_UP_SECONDS + pace.seconds.max(2);
    let jobs = |rate| format!("exec bash -c '{JOBS}' {rate} {seconds}");
    let began = Instant::now();
    let beside = other.start(&jobs(OTHER_VM_RATE))?;
    let running = vm.start(&jobs(cell.level("rate")))?;
    let mut looks = Vec::new();
    let output = loop {
        if let Some(output) = running.ended()? {
            break output;
        }
        looks.push(SizeSample::of(&testbed.show_space()?, began)?);
        interrupt::sleep(STATUS_INTERVAL)?;
    };
    beside.wait(LIMIT)?;
    let unreadable = || Error::unreadable("what writing took", &output.stderr);
    let write_us: f64 = output.stdout.trim().parse().map_err(|_| unreadable())?;
    interrupt::sleep(IDLE_TIME)?;
    let after = SizeSample::of(&testbed.show_space()?, began)?;
    looks.retain(|look| (WARM_UP_SECONDS..seconds).contains(&whole(look.at)));
    let average = |of: fn(&SizeSample) -> f64| mean(&looks.iter().map(of).collect::<Vec<f64>>());
    Ok(values(&[
        ("slots", average(|look| look.slots)),
        ("used", average(|look| look.used)),
        ("mib", average(|look| look.mib)),
        ("idle_slots", after.slots),
        ("idle_mib", after.mib),
        ("write_ms", write_us / 1e3),
    ]))
}

fn whole(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}
