//! The directory of names: a file on the board with a line `NIC NAME` for each member and other
//! host that the uplink reported. Without the file, the NIC id of a name is that of a member with
//! this name ([`Board::nic_of`](crate::Board::nic_of)).

use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "hosts";

/// The longest name in bytes: that of MX, with its NUL.
const LONGEST: usize = 80;

/// A NIC id and its name, of a member or another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNic {
    /// The NIC id, which is also the address on the wire.
    pub nic: u64,
    /// The name.
    pub name: String,
}

/// Replaces the file atomically. `admit` lets others read the new one before.
pub(super) fn write(
    folder: &Path,
    named_nics: impl Iterator<Item = NamedNic>,
    admit: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let line = |named_nic: NamedNic| format!("{:012x} {}\n", named_nic.nic, named_nic.name);
    // A name that does not fit on a line is skipped.
    let sane = |named_nic: &NamedNic| {
        let name = &named_nic.name;
        !name.is_empty() && name.len() < LONGEST && !name.contains(char::is_control)
    };
    let text: String = named_nics.filter(sane).map(line).collect();
    let new = folder.join(".hosts");
    fs::write(&new, text)?;
    admit(&new)?;
    fs::rename(new, folder.join(FILE))
}

/// Removes the file: no name has been reported yet.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads all lines, in the order in which the uplink reported them, which is members first; an
/// empty list if there is no file.
pub(crate) fn read(folder: &Path) -> Vec<NamedNic> {
    let file = folder.join(FILE);
    // The folder may be another user's, who could have put a pipe there, whose read waits.
    let text = match fs::metadata(&file).is_ok_and(|found| found.is_file()) {
        true => fs::read_to_string(&file).unwrap_or_default(),
        false => String::new(),
    };
    let named_nic = |line: &str| {
        let (nic, name) = line.split_once(' ')?;
        let nic = u64::from_str_radix(nic, 16).ok()?;
        let name = name.to_owned();
        Some(NamedNic { nic, name })
    };
    text.lines().filter_map(named_nic).collect()
}
