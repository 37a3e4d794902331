//! Descriptors that QEMU keeps under a number (`add-fd`), for commands that take a path.

use std::os::fd::BorrowedFd;

use serde_json::{Value, json};

use crate::DirectError;
use crate::qmp::Qmp;

/// A set of descriptors in QEMU that has one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FdSet {
    pub(crate) id: u64,
    /// The descriptor's number in QEMU.
    pub(crate) fd: u64,
}

impl Qmp {
    /// Passes a descriptor to QEMU, which keeps it open until [`Qmp::remove_fd`]. Returns its number in QEMU.
    /// `opaque` is what `query-fdsets` reports with it.
    pub(crate) fn add_fd(
        &mut self,
        opaque: &str,
        fd: BorrowedFd<'_>,
    ) -> Result<FdSet, DirectError> {
        let answer = self.execute_with("add-fd", &json!({"opaque": opaque}), fd)?;
        let number = |key| answer.get(key).and_then(Value::as_u64);
        match (number("fdset-id"), number("fd")) {
            (Some(id), Some(fd)) => Ok(FdSet { id, fd }),
            _ => Err(DirectError::Monitor("add-fd".to_owned())),
        }
    }

    /// Has QEMU close the descriptors of a set that [`Qmp::add_fd`] made.
    pub(crate) fn remove_fd(&mut self, id: u64) -> Result<(), DirectError> {
        let arguments = json!({"fdset-id": id});
        self.execute("remove-fd", &arguments).map(drop)
    }

    /// Returns the sets of descriptors that were passed with `opaque`.
    pub(crate) fn fd_sets(&mut self, opaque: &str) -> Result<Vec<u64>, DirectError> {
        let answer = self.execute("query-fdsets", &json!({}))?;
        let has_it = |set: &&Value| {
            let fds = set.get("fds").and_then(Value::as_array);
            let mut fds = fds.into_iter().flatten();
            fds.any(|fd| fd.get("opaque").and_then(Value::as_str) == Some(opaque))
        };
        let sets = answer.as_array().into_iter().flatten().filter(has_it);
        Ok(sets
            .filter_map(|set| set.get("fdset-id")?.as_u64())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::qmp::tests::answering;

    #[test]
    fn a_descriptor_is_passed_and_found_again() {
        // The answers of QEMU 10.0.
        let set = |id: u64, fd: u64, opaque: &str| json!({"fds": [{"fd": fd, "opaque": opaque}], "fdset-id": id});
        let without = json!({"fds": [{"fd": 9}], "fdset-id": 7});
        let sets = json!([set(3, 20, "m"), without, set(1, 18, "m"), set(0, 17, "x")]);
        let answers = [json!({"fd": 18, "fdset-id": 1}), sets, json!({})];
        let (mut qmp, _qemu) = answering(&answers);
        let file = std::fs::File::open("/dev/null").unwrap();
        let passed = qmp.add_fd("m", file.as_fd()).unwrap();
        assert_eq!(passed, FdSet { id: 1, fd: 18 });
        assert_eq!(qmp.fd_sets("m").unwrap(), [3, 1]);
        qmp.remove_fd(3).unwrap();
    }
}
