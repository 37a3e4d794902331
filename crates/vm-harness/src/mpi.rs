//! MPI jobs between VMs: the image of their guests, ssh between them, and the command that starts ranks.
//!
//! Open MPI starts ranks in other VMs by ssh: `mpirun` in the first VM, with its hostfile, runs `orted` in each. The
//! guests' ssh is dropbear, whose client needs no configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Result;
use crate::image::{Image, Recipe};
use crate::vm::Vm;

/// Longest time that a command may take in a guest of a busy host.
const LIMIT: Duration = Duration::from_secs(120);

/// Memory in MiB of a guest with Open MPI.
pub const MEMORY_MIB: u32 = 768;

/// The ordinary user of the VMs that runs the jobs.
const USER: &str = "mpi";

/// The private key of the first VM's user.
pub const KEY: &str = "/home/mpi/.ssh/key";

/// The hostfile of the first VM.
pub const HOSTFILE: &str = "/home/mpi/hosts";

/// The command that makes a VM a member, with a user who may use the message plane.
pub const JOIN: &str = "grep -q ^mpi: /etc/passwd || { echo vicinity:x:900:mpi >>/etc/group; \
     echo mpi:x:1000: >>/etc/group; echo mpi:x:1000:1000::/home/mpi:/bin/bash >>/etc/passwd; \
     install -d -o mpi -g mpi -m 755 /home/mpi; }; exec vicinity message join --unix-group vicinity";

/// Path of MPI programs below a guest's root.
const PROGRAMS: &str = "usr/local/bin";

/// The files of Open MPI's components.
pub const COMPONENTS: [&str; 5] = [
    "mca_btl_vicinity.so",
    "mca_pml_vicinity.so",
    "mca_coll_vicinity.so",
    "mca_mpool_vicinity.so",
    "mca_osc_vicinity.so",
];

/// The files of this host that guests need, beside Debian's packages.
#[derive(Clone, Debug)]
pub struct Files {
    /// `vicinity`.
    pub vicinity: PathBuf,
    /// The folder with [`COMPONENTS`].
    pub components: PathBuf,
    /// `libmyriexpress.so`.
    pub library: PathBuf,
    /// An MPI program, which guests find in their path.
    pub program: PathBuf,
}

/// Returns the recipe of an image with Open MPI.
#[must_use]
pub fn recipe() -> Recipe {
    Recipe::default()
        .package("dropbear-bin")
        .package("openmpi-bin")
}

impl Files {
    /// Returns these files, each with its path in a guest, at the paths of the packages.
    #[must_use]
    pub fn in_guest(&self) -> Vec<(PathBuf, PathBuf)> {
        let library = Path::new("usr/lib/x86_64-linux-gnu");
        let name = self.program.file_name().unwrap_or_default();
        let mut files = vec![
            (self.library.clone(), library.join("libmyriexpress.so")),
            (self.program.clone(), Path::new(PROGRAMS).join(name)),
        ];
        let system = library.join("openmpi/lib/openmpi3");
        files.extend(COMPONENTS.map(|file| (self.components.join(file), system.join(file))));
        files
    }

    /// Returns the image with these files. They are made in `folder`.
    ///
    /// # Errors
    /// As for [`Image::with_program`].
    pub fn put_into(&self, image: &Image, folder: &Path) -> Result<Image> {
        let files = self.in_guest();
        let files: Vec<_> = files
            .iter()
            .map(|(file, inside)| (file.as_path(), inside.as_path()))
            .collect();
        image.with_program_and_files(&self.vicinity, &files, folder)
    }
}

/// Lets the user of the first VM start programs in the others by their names: each has all addresses, and a server for
/// ssh that admits the user's key. All VMs have [joined](JOIN).
///
/// # Errors
/// A command in a guest fails.
pub fn admit(vms: &[Vm], addresses: &[String]) -> Result<()> {
    let Some(first) = vms.first() else {
        return Ok(());
    };
    let make =
        format!("dropbearkey -t ed25519 -f {KEY} >/dev/null; dropbearkey -y -f {KEY} | grep ^ssh-");
    let make = as_user(&format!("bash -c 'mkdir -p -m 700 $HOME/.ssh; {make}'"));
    let public = first.check(&make, LIMIT)?;
    let public = public.trim();
    let hosts = vms.iter().zip(addresses);
    let hosts: String = hosts
        .map(|(vm, address)| format!("{address} {}\n", vm.name()))
        .collect();
    for vm in vms {
        let command = format!(
            "umask 022; echo '127.0.0.1 localhost\n{hosts}' >/etc/hosts; echo /bin/bash >/etc/shells; \
             install -d -o {USER} -g {USER} -m 700 /home/mpi/.ssh; \
             echo '{public}' >/home/mpi/.ssh/authorized_keys; \
             dropbearkey -t ed25519 -f /tmp/host.key >/dev/null; dropbear -s -r /tmp/host.key; \
             until ss -Htln 'sport = :22' | grep -q .; do sleep 0.1; done"
        );
        vm.check(&command, LIMIT)?;
    }
    Ok(())
}

/// Writes the [hostfile](HOSTFILE) of the first VM.
///
/// # Errors
/// The command in the guest fails.
pub fn write_hostfile(vm: &Vm, text: &str) -> Result<()> {
    let write = format!("printf '{text}' >{HOSTFILE} && chown {USER} {HOSTFILE}");
    vm.check(&write, LIMIT).map(drop)
}

/// Returns the command by which root of a VM runs a command as the user.
#[must_use]
pub fn as_user(command: &str) -> String {
    format!("setpriv --reuid {USER} --regid {USER} --init-groups env HOME=/home/mpi {command}")
}

/// Returns the command that runs a job with the [hostfile](HOSTFILE) of the first VM. `arguments` are options of `mpirun`,
/// the program and its arguments.
#[must_use]
pub fn job(arguments: &str) -> String {
    let agent = format!("--mca plm_rsh_agent 'dbclient -y -y -i {KEY}'");
    as_user(&format!(
        "mpirun.openmpi {agent} --hostfile {HOSTFILE} --bind-to none {arguments}"
    ))
}
