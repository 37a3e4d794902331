//! Open MPI's component for the message plane, and jobs that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::mx::{Installed, succeed};
use super::root;

/// The version of Open MPI that the component is made for.
const VERSION: &str = "4.1.";

/// What a rank says once of each peer whose memory it accesses by its own processor.
pub(crate) const DIRECT: &str = "on its heap is accessed without its help";

/// Returns what rank 0 says when the ranks of `MPI_COMM_WORLD` carry out short collective operations over their heaps.
pub(crate) fn collective(ranks: u32) -> String {
    format!("short collective operations of MPI_COMM_WORLD use the heaps of its {ranks} ranks")
}

/// Returns why this machine cannot build or run the component.
pub(crate) fn missing() -> Option<String> {
    for program in ["mpicc", "mpirun", "ompi_info", "make"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("{program} is not installed (scripts/setup mpi)"));
        }
    }
    let text = succeed(Command::new("ompi_info").arg("--version"));
    let line = text.lines().next().unwrap_or_default();
    let version = line.trim_start_matches("Open MPI v");
    if !version.starts_with(VERSION) {
        return Some(format!("Open MPI is {version}, not {VERSION}x"));
    }
    let folders = succeed(Command::new("mpicc").arg("--showme:incdirs"));
    let has = |header: &str| {
        let mut folders = folders.split_whitespace();
        folders.any(|folder| Path::new(folder).join(header).exists())
    };
    let header = "openmpi/opal/mca/btl/btl.h";
    (!has(header)).then(|| format!("{header} is not installed (scripts/setup mpi)"))
}

/// Compiles the conformance program with the compiler of an MPI.
pub(crate) fn compile(compiler: &Path, program: &Path) {
    let folder = root().join("mpi/openmpi/tests");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|it| it == "c"));
    let mut compile = Command::new(compiler);
    compile.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    succeed(compile.args(sources).args(["-pthread", "-o"]).arg(program));
}

/// Parts of the conformance program.
pub(crate) const PARTS: usize = 37;

/// Builds the components, the library that they load and the conformance program as a user does, once for a test program.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let name = concat!("open-mpi-", env!("CARGO_CRATE_NAME"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // What an earlier run built may be older than its sources.
        let _absent = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut make = Command::new("make");
        make.arg("--directory").arg(root().join("mpi/openmpi"));
        make.arg(format!("BUILD={}", folder.display()));
        succeed(&mut make);
        compile(Path::new("mpicc"), &folder.join("conformance"));
        Installed::new(folder.join("mx"));
        folder
    })
}

/// The components and the conformance program, for jobs with a folder of their own.
pub(crate) struct OpenMpi {
    folder: PathBuf,
    built: PathBuf,
    /// Those of the distribution.
    system: String,
}

impl OpenMpi {
    /// Jobs use this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let path = ["--parsable", "--path", "pkglibdir"];
        let system = succeed(Command::new("ompi_info").args(path));
        let (_, system) = system.trim().rsplit_once(':').unwrap();
        Self {
            built: built().to_owned(),
            system: system.to_owned(),
            folder: folder.to_owned(),
        }
    }

    /// Returns the same in a folder that all users may read, for jobs of this user.
    pub(crate) fn of_user(&self, user: u32) -> Self {
        let [built, folder] = ["built", "of-user"].map(|name| self.folder.join(name));
        succeed(Command::new("cp").arg("-r").arg(&self.built).arg(&built));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(user), None).unwrap();
        succeed(Command::new("chmod").args(["-R", "a+rX"]).arg(&self.folder));
        Self {
            built,
            folder,
            system: self.system.clone(),
        }
    }

    /// Returns `mpirun` with the settings of every job. The caller adds the ranks.
    pub(crate) fn run(&self, components: &str) -> Command {
        let mut run = Command::new("mpirun");
        run.args(["--oversubscribe", "--bind-to", "none"]);
        run.args(["--mca", "btl", components]);
        let components = format!("{}:{}", self.built.display(), self.system);
        run.env("OMPI_MCA_mca_base_component_path", components);
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
        run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        run.env("LD_LIBRARY_PATH", self.libraries());
        run.env("VICINITY_RUNTIME_DIR", self.folder.join("run"));
        run.env("TMPDIR", &self.folder);
        run
    }

    /// Returns the files that guests need.
    pub(crate) fn files(&self) -> vm_harness::mpi::Files {
        vm_harness::mpi::Files {
            vicinity: PathBuf::from(env!("CARGO_BIN_EXE_vicinity")),
            components: self.built.clone(),
            library: self.libraries().join("libmyriexpress.so"),
            program: self.program(),
        }
    }

    /// Returns the test program.
    pub(crate) fn program(&self) -> PathBuf {
        self.built.join("conformance")
    }

    /// Returns the folder of the library that the components load.
    fn libraries(&self) -> PathBuf {
        self.built.join("mx/lib64")
    }
}
