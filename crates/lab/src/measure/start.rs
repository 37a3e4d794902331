//! Measures the creation and the start of VMs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::dip::dip;
use super::pace::{Pace, WARM_UP};
use super::web::{self, solo};
use crate::http::Load;
use crate::sample::{Cell, Values, values};
use crate::second_host;
use crate::testbed::{BOOT, Testbed, serve};
use crate::thread_times::watch;
use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;
use vm_harness::scope::RunFolder;
use vm_harness::vm::{Spec, Vm};

/// Time from the beginning of the measurement to the start of the VMs. It shows the server's throughput without a
/// start.
const BEFORE: Duration = Duration::from_millis(500);

/// Measures VM 1 near its maximum while other VMs start on the same switch.
pub(super) fn start(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let (server, file) = (cell.level("server"), cell.level("file"));
    let rate = 0.9 * solo(testbed, server, file, pace)?;
    testbed.run_only(1)?;
    let load = Load {
        server: second_host::server(testbed.network("switch")?, 1, web::port(server))?,
        path: format!("/{file}"),
        rate: Some(rate),
        warm_up: f64::from(WARM_UP),
        // The measurement is long enough for most of a start.
        seconds: f64::from(pace.seconds) + 6.0,
        workers: 64,
    };
    let starts: usize = cell.level("starts").parse().unwrap_or(0);
    let testbed = &*testbed;
    let (sets, remote) = (testbed.sets(1, 1), &testbed.remote);
    let ((report, times), mut metrics) = watch(&sets, pace.watched(), || {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| remote.request(&load));
            interrupt::sleep(Duration::from_secs(WARM_UP.into()) + BEFORE)?;
            let times = start_all(testbed, server, starts);
            let report = client
                .join()
                .map_err(|_| Error::Host("the HTTP client failed".to_owned()))?;
            Ok((report?, times?))
        })
    })?;
    metrics.extend(dip(&report, rate, BEFORE));
    metrics.extend(values(&[
        ("req_s", report.req_s),
        ("ratio", report.req_s / rate),
    ]));
    let slowest = |times: Vec<f64>| times.into_iter().reduce(f64::max);
    let (up, answered): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    for (key, times) in [("start_s", up), ("first_s", answered)] {
        metrics.extend(slowest(times).map(|time| (key.to_owned(), time)));
    }
    Ok(metrics)
}

/// Starts `count` VMs at the same time, and returns the seconds until each answers and until it has served a request.
/// The VMs are stopped when this returns.
fn start_all(testbed: &Testbed, server: &str, count: usize) -> Result<Vec<(f64, f64)>> {
    let began = Instant::now();
    let booted: Vec<(Vm, u8)> = (0..count)
        .map(|place| testbed.boot_another(place))
        .collect::<Result<_>>()?;
    let ready = |(vm, number): &(Vm, u8)| {
        vm.wait_ready(BOOT)?;
        let up = began.elapsed().as_secs_f64();
        serve(vm)?;
        let load = Load {
            server: second_host::server(testbed.network("switch")?, *number, web::port(server))?,
            path: "/1".to_owned(),
            rate: None,
            warm_up: 0.0,
            seconds: 0.01,
            workers: 1,
        };
        interrupt::poll("the first answer of a VM that was started", BOOT, || {
            Ok((testbed.remote.request(&load)?.answers > 0).then_some(()))
        })?;
        Ok((up, began.elapsed().as_secs_f64()))
    };
    booted.iter().map(ready).collect()
}

/// Copies a disk in full, and starts a VM with it.
pub(super) fn create(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let times: u64 = cell
        .level("disk")
        .trim_end_matches('x')
        .parse()
        .unwrap_or(1);
    testbed.run_only(0)?;
    let folder = testbed.place.cache.join("disks");
    fs::create_dir_all(&folder).context(|| format!("make {}", folder.display()))?;
    let size = pace.disk * times;
    let template = folder.join(format!("template-{size}"));
    if !template.exists() {
        fill(&template, size)?;
    }
    // The copy is on the disk and not in /run, because a copy in memory would be a different experiment.
    let owner = RunFolder::new()?;
    let copy = folder.join(owner.path().file_name().unwrap_or_default());
    let began = Instant::now();
    let copied = copied(&template, &copy);
    let seconds = began.elapsed().as_secs_f64();
    let started = copied.and_then(|()| start_with(testbed, &copy));
    let removed = fs::remove_file(&copy).context(|| format!("remove {}", copy.display()));
    let started = started?;
    removed?;
    Ok(values(&[("create_s", seconds), ("start_s", started)]))
}

/// Copies byte by byte: `fs::copy` would share the blocks if the file system supports that.
fn copied(from: &Path, to: &Path) -> Result<()> {
    let copy = || -> std::io::Result<()> {
        let (mut from, mut to) = (File::open(from)?, File::create(to)?);
        let mut chunk = vec![0; 1 << 20];
        loop {
            match from.read(&mut chunk)? {
                0 => break,
                got => to.write_all(chunk.get(..got).unwrap_or_default())?,
            }
        }
        to.sync_all()
    };
    copy().context(|| format!("copy {} to {}", from.display(), to.display()))
}

/// Makes a file without holes.
fn fill(path: &Path, mib: u64) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let chunk: Vec<u8> = (0..1_048_576_u32)
            .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect();
        for _ in 0..mib {
            file.write_all(&chunk)?;
        }
        file.sync_all()
    };
    write().context(|| format!("make {}", path.display()))
}

fn start_with(testbed: &Testbed, disk: &Path) -> Result<f64> {
    let mut spec = Spec::new("created", &testbed.place.logs);
    spec.qemu_args = vec![
        "-drive".to_owned(),
        format!("file={},format=raw,if=virtio", disk.display()),
    ];
    let began = Instant::now();
    let vm = Vm::boot(&testbed.image, spec)?;
    vm.wait_ready(BOOT)?;
    Ok(began.elapsed().as_secs_f64())
}
