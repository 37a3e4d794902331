//! Names and NIC ids of members and of other hosts, as the uplink knows them: a file on the board,
//! with a line for each, `NIC NAME`. Without one, a name's NIC id is that of a member of this name
//! ([`Board::nic_of`](crate::Board::nic_of)).

use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "hosts";

/// Longest name, in bytes: that of MX, with its NUL.
const LONGEST: usize = 80;

/// A member as other hosts know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    /// Its NIC id, and so its address on the wire.
    pub nic: u64,
    /// Its name.
    pub name: String,
}

/// Write it anew, whole or not at all.
pub(super) fn write(folder: &Path, faces: impl Iterator<Item = Face>) -> io::Result<()> {
    let line = |face: Face| format!("{:012x} {}\n", face.nic, face.name);
    // A name that cannot be in a line is none.
    let sane = |face: &Face| {
        let name = &face.name;
        !name.is_empty() && name.len() < LONGEST && !name.contains(char::is_control)
    };
    let text: String = faces.filter(sane).map(line).collect();
    let new = folder.join(".hosts");
    fs::write(&new, text)?;
    fs::rename(new, folder.join(FILE))
}

/// Remove it: nobody knows anybody yet.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// All lines of it, members first, and whoever was found first before others; none when there is
/// none.
pub(crate) fn read(folder: &Path) -> Vec<Face> {
    let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    let face = |line: &str| {
        let (nic, name) = line.split_once(' ')?;
        let nic = u64::from_str_radix(nic, 16).ok()?;
        let name = name.to_owned();
        Some(Face { nic, name })
    };
    text.lines().filter_map(face).collect()
}
