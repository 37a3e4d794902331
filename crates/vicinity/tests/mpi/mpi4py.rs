//! The tests of mpi4py, Python's interface of MPI: nearly two thousand calls of MPI's functions that others wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::libfabric::wheel;
use crate::common::mx::succeed;
use crate::common::open_mpi::OpenMpi;
use crate::{BY_PML, ONLY_PLANE, output, prepare};

const VERSION: &str = "mpi4py-4.0.3";

/// Tests of Python's documentation strings, and of processes that are started later: with Debian 12's packages, such a process may wait without a limit in
/// `PMIx_Init`, before MPI has any component.
const LEFT_OUT: [&str; 2] = ["doc", "spawn"];

/// At least as many tests run.
const TESTS: usize = 1800;

/// Python with the package, and the folder of its tests.
struct Mpi4py {
    python: PathBuf,
    source: PathBuf,
}

impl Mpi4py {
    fn new(folder: &Path) -> Self {
        let place = wheel(folder, "numpy");
        let pip = |words: &[&str]| {
            let mut pip = Command::new(place.join("bin/pip"));
            // Without optimisation: it takes minutes, and the tests measure nothing.
            pip.env("MPICC", "mpicc -O0").env("CFLAGS", "-O0 -g0");
            succeed(pip.current_dir(folder).args(words));
        };
        let package = VERSION.replace('-', "==");
        let archive = format!("{VERSION}.tar.gz");
        pip(&[
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            &package,
        ]);
        pip(&["install", "--quiet", "--no-deps", &archive]);
        let mut unpack = Command::new("tar");
        succeed(
            unpack
                .arg("xf")
                .arg(folder.join(&archive))
                .arg("-C")
                .arg(folder),
        );
        Self {
            python: place.join("bin/python"),
            source: folder.join(VERSION),
        }
    }

    /// Runs the tests by each of so many ranks.
    fn pass(&self, mpi: &OpenMpi, options: &[&str], ranks: usize) {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options)
            .args(["--mca", "mpi_yield_when_idle", "1"]);
        run.args(["-n", &ranks.to_string()]).arg(&self.python);
        run.arg(self.source.join("test/main.py"));
        for part in LEFT_OUT {
            run.args(["-x", part]);
        }
        let (output, text) = output(&run);
        assert!(output.status.success(), "{text}");
        let numbers = text.split("Ran ").skip(1).filter_map(|rest| {
            let (number, _) = rest.split_once(" tests in ")?;
            number.parse::<usize>().ok()
        });
        let counts: Vec<_> = numbers.collect();
        assert!(
            counts.len() == ranks && counts.iter().all(|count| *count >= TESTS),
            "{counts:?}"
        );
    }
}

#[test]
#[ignore = "downloads and compiles mpi4py; run by make soak"]
fn the_tests_of_mpi4py_pass() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let mpi4py = Mpi4py::new(folder.path());
    for options in [&[][..], &BY_PML] {
        for ranks in [2, 3] {
            mpi4py.pass(&mpi, options, ranks);
        }
    }
}
