//! QEMU's monitor: one command, one answer, and events in between.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use crate::{DirectError, io};

/// Messages that no command asked for and that are looked at together, at most.
const HEARD: u32 = 64;

/// QEMU answers within this, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Longest line accepted, in bytes.
const LINE: usize = 16 << 20;

/// A connection to a VM's monitor.
#[derive(Debug)]
pub struct Qmp {
    socket: UnixStream,
    pending: Vec<u8>,
    /// The guest has started again.
    reset: bool,
}

/// The process at the other end of a Unix socket.
pub(crate) fn process_of(socket: impl AsFd) -> Result<i32, DirectError> {
    let of = rustix::net::sockopt::socket_peercred(socket);
    let of = io(of, || "ask who QEMU is".to_owned())?;
    Ok(of.pid.as_raw_nonzero().get())
}

impl Qmp {
    /// Connect; `None` when no process listens there.
    ///
    /// # Errors
    /// The process that listens is no QEMU, or is busy with another client.
    pub fn connect(path: &Path) -> Result<Option<Self>, DirectError> {
        let Ok(socket) = UnixStream::connect(path) else {
            return Ok(None);
        };
        let mut qmp = Self {
            socket,
            pending: Vec::new(),
            reset: false,
        };
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(Some(qmp))
    }

    /// The process at the other end.
    pub(crate) fn process(&self) -> Result<i32, DirectError> {
        process_of(&self.socket)
    }

    /// Run a command and return its answer.
    ///
    /// # Errors
    /// QEMU refuses, is gone, or says nothing for 20 s.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, DirectError> {
        let line = line(command, arguments);
        let sent = self.socket.write_all(line.as_bytes());
        io(sent, || format!("send {command} to QEMU"))?;
        self.answer(command)
    }

    /// Hand a descriptor over, which QEMU keeps under this name.
    pub(crate) fn give(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), DirectError> {
        let line = line("getfd", &json!({"fdname": name}));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(line.as_bytes())];
        let sent = sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL);
        let whole = io(sent, || "send getfd to QEMU".to_owned())? == line.len();
        match whole {
            true => self.answer("getfd").map(drop),
            false => Err(DirectError::Monitor("getfd".to_owned())),
        }
    }

    fn answer(&mut self, command: &str) -> Result<Value, DirectError> {
        let end = Instant::now() + LIMIT;
        let silent = || DirectError::Monitor(command.to_owned());
        // Nor longer, whatever else it says.
        while Instant::now() < end {
            let mut message = self.receive(end)?.ok_or_else(silent)?;
            if let Some(error) = message.get("error") {
                let reason = error.get("desc").and_then(Value::as_str);
                return Err(DirectError::Refused {
                    command: command.to_owned(),
                    reason: reason.unwrap_or("without a reason").to_owned(),
                });
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
        Err(silent())
    }

    /// The same, for a command that answers with a text.
    pub(crate) fn text(
        &mut self,
        command: &str,
        arguments: &[(&str, &str)],
    ) -> Result<String, DirectError> {
        let arguments = arguments
            .iter()
            .map(|(key, value)| (*key, *value))
            .collect();
        let answer = self.execute(command, &arguments)?;
        let text = answer.as_str().map(str::to_owned);
        text.ok_or_else(|| DirectError::Monitor(command.to_owned()))
    }

    /// Names below an object of QEMU's that begin so.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn names(&mut self, path: &str, prefix: &str) -> Result<Vec<String>, DirectError> {
        let answer = self.execute("qom-list", &json!({"path": path}))?;
        let all = answer.as_array().into_iter().flatten();
        let names = all.filter_map(|one| one.get("name").and_then(Value::as_str));
        let wanted = names.filter(|name| name.starts_with(prefix));
        Ok(wanted.map(str::to_owned).collect())
    }

    /// The name of a device of the host that this VM has by VFIO, if it has one.
    pub(crate) fn passthrough(&mut self) -> Result<Option<String>, DirectError> {
        let text = |one: &Value, key| one.get(key).and_then(Value::as_str).map(str::to_owned);
        // Devices with an id, and without.
        for path in ["/machine/peripheral", "/machine/peripheral-anon"] {
            let answer = self.execute("qom-list", &json!({"path": path}))?;
            let mut all = answer.as_array().into_iter().flatten();
            let is_vfio = |one: &&Value| {
                text(one, "type").is_some_and(|kind| kind.starts_with("child<vfio-"))
            };
            if let Some(device) = all.find(is_vfio) {
                return Ok(text(device, "name"));
            }
        }
        Ok(None)
    }

    /// Whether the guest runs: it is not about to arrive here, or gone elsewhere.
    pub(crate) fn is_running(&mut self) -> Result<bool, DirectError> {
        let status = self.execute("query-status", &json!({}))?;
        Ok(status.get("running") == Some(&Value::Bool(true)))
    }

    /// Bytes of a memory backend, which must be shared.
    pub(crate) fn size_of_shared_memory(&mut self, id: &str) -> Result<u64, DirectError> {
        let answer = self.execute("query-memdev", &json!({}))?;
        let is_it = |memory: &&Value| memory.get("id").and_then(Value::as_str) == Some(id);
        let memory = answer.as_array().and_then(|all| all.iter().find(is_it));
        let memory = memory.ok_or_else(|| DirectError::Monitor("query-memdev".to_owned()))?;
        if memory.get("share") != Some(&Value::Bool(true)) {
            let text = format!("the VM's memory `{id}` is private: give it `share=on`");
            return Err(DirectError::Memory(text));
        }
        let size = memory.get("size").and_then(Value::as_u64);
        size.ok_or_else(|| DirectError::Monitor("query-memdev".to_owned()))
    }

    /// Whether the guest has started again; an error when QEMU is gone.
    pub(crate) fn read_events(&mut self) -> Result<bool, DirectError> {
        for _ in 0..HEARD {
            if self.receive(Instant::now())?.is_none() {
                break;
            }
        }
        Ok(std::mem::take(&mut self.reset))
    }

    /// The next message that is no event, if it comes in time.
    fn receive(&mut self, end: Instant) -> Result<Option<Value>, DirectError> {
        let mut late = false;
        loop {
            while let Some(message) = self.next_line()? {
                match message.get("event").and_then(Value::as_str) {
                    Some(name) => self.reset |= name == "RESET",
                    None => return Ok(Some(message)),
                }
            }
            // One that never stops talking has had its time.
            if late {
                return Ok(None);
            }
            late = Instant::now() >= end;
            if !self.fill(end)? {
                return Ok(None);
            }
        }
    }

    fn next_line(&mut self) -> Result<Option<Value>, DirectError> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        let value = serde_json::from_slice(&line);
        value
            .map(Some)
            .map_err(|_| DirectError::Monitor("what it was asked".to_owned()))
    }

    /// Read what is there, waiting until `end`; false when nothing came.
    fn fill(&mut self, end: Instant) -> Result<bool, DirectError> {
        let what = || "listen to QEMU's monitor".to_owned();
        // Zero would mean for ever.
        let left = end.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        io(self.socket.set_read_timeout(Some(left)), what)?;
        let mut chunk = [0; 16384];
        match self.socket.read(&mut chunk) {
            Ok(0) => io(Err(std::io::Error::from(ErrorKind::UnexpectedEof)), what),
            Ok(_) if self.pending.len() > LINE => Err(DirectError::Monitor("anything".to_owned())),
            Ok(got) => {
                self.pending.extend(chunk.iter().take(got));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => io(Err(error), what),
        }
    }
}

fn line(command: &str, arguments: &Value) -> String {
    format!("{}\n", json!({"execute": command, "arguments": arguments}))
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_events_are_told_apart() {
        let (socket, mut qemu) = UnixStream::pair().unwrap();
        let mut qmp = Qmp {
            socket,
            pending: Vec::new(),
            reset: false,
        };
        qemu.write_all(b"{\"QMP\": {}}\n{\"event\": \"RESET\"}\n{\"return\": \"x\"}\n")
            .unwrap();
        assert_eq!(qmp.text("a", &[]).unwrap(), "x");
        assert!(qmp.read_events().unwrap() && !qmp.read_events().unwrap());
        qemu.write_all(b"{\"error\": {\"desc\": \"no\"}}\n")
            .unwrap();
        let refused = qmp.execute("b", &json!({})).unwrap_err();
        assert_eq!(refused.to_string(), "QEMU refused b: no");
        drop(qemu);
        assert!(qmp.read_events().is_err());
    }

    #[test]
    fn a_device_of_the_host_is_found_with_an_id_and_without() {
        // As QEMU 10.0 answers: the folder's own type first, then the children.
        let none = json!([{"name": "type", "type": "string"},
            {"name": "net0", "type": "child<virtio-net-pci>"}]);
        let hostdev = json!([{"name": "type", "type": "string"},
            {"name": "device[0]", "type": "child<VGA>"},
            {"name": "device[1]", "type": "child<vfio-pci>"}]);
        let named = json!([{"name": "type", "type": "string"},
            {"name": "hostdev0", "type": "child<vfio-pci-nohotplug>"}]);
        for (answers, expected) in [
            (vec![&none, &none], None),
            (vec![&none, &hostdev], Some("device[1]")),
            (vec![&named], Some("hostdev0")),
        ] {
            let (socket, mut qemu) = UnixStream::pair().unwrap();
            for answer in answers {
                let line = format!("{}\n", json!({"return": answer}));
                qemu.write_all(line.as_bytes()).unwrap();
            }
            let mut qmp = Qmp {
                socket,
                pending: Vec::new(),
                reset: false,
            };
            assert_eq!(qmp.passthrough().unwrap().as_deref(), expected);
        }
    }

    #[test]
    fn a_monitor_that_never_stops_talking_is_not_listened_to_for_ever() {
        for line in ["{\"event\": \"RESET\"}\n", "{\"QMP\": {}}\n"] {
            let (socket, mut qemu) = UnixStream::pair().unwrap();
            let mut qmp = Qmp {
                socket,
                pending: Vec::new(),
                reset: false,
            };
            let lines = line.repeat(1000);
            let talking =
                std::thread::spawn(move || while qemu.write_all(lines.as_bytes()).is_ok() {});
            let started = Instant::now();
            for _ in 0..10 {
                qmp.read_events().unwrap();
            }
            assert!(started.elapsed() < Duration::from_secs(10));
            drop(qmp);
            talking.join().unwrap();
        }
    }
}
