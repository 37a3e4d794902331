//! A client of QEMU's monitor protocol (QMP). QEMU sends one answer to each command, and may send
//! events between answers.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use crate::{DirectError, io};

/// The maximum number of unsolicited messages that one call of [`Qmp::read_events`] reads.
const MAX_EVENTS: u32 = 64;

/// The maximum time to wait for QEMU's answer. QEMU answers within this time also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The length of the longest accepted line, in bytes.
const LINE: usize = 16 << 20;

/// The path of the devices that have ids, in QEMU's object tree.
pub(crate) const DEVICES: &str = "/machine/peripheral";

/// What QEMU has sent events of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    /// The guest was reset.
    pub(crate) reset: bool,
    /// QEMU has removed a device.
    pub(crate) device_deleted: bool,
}

/// A connection to a VM's monitor.
#[derive(Debug)]
pub struct Qmp {
    socket: UnixStream,
    pending: Vec<u8>,
    /// The events since the last call of [`Qmp::read_events`].
    events: Events,
}

impl Qmp {
    /// Connects to the monitor. Returns `None` if no process listens on the socket.
    ///
    /// # Errors
    /// Fails if the process that listens is not QEMU, or serves another client.
    pub fn connect(path: &Path) -> Result<Option<Self>, DirectError> {
        let Ok(socket) = UnixStream::connect(path) else {
            return Ok(None);
        };
        let mut qmp = Self {
            socket,
            pending: Vec::new(),
            events: Events::default(),
        };
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(Some(qmp))
    }

    /// Returns QEMU's process id.
    pub(crate) fn process(&self) -> Result<i32, DirectError> {
        let of = rustix::net::sockopt::socket_peercred(&self.socket);
        let of = io(of, || "read the credentials of QEMU".to_owned())?;
        Ok(of.pid.as_raw_nonzero().get())
    }

    /// Runs a command and returns its answer.
    ///
    /// # Errors
    /// Fails if QEMU refuses the command, has ended, or does not answer within 20 s.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, DirectError> {
        let line = line(command, arguments);
        let sent = self.socket.write_all(line.as_bytes());
        io(sent, || format!("send {command} to QEMU"))?;
        self.answer(command)
    }

    /// Passes a descriptor to QEMU, which stores it under this name.
    pub(crate) fn pass_fd(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), DirectError> {
        let arguments = json!({"fdname": name});
        self.execute_with("getfd", &arguments, fd).map(drop)
    }

    /// Runs a command that takes a descriptor, and returns its answer.
    pub(crate) fn execute_with(
        &mut self,
        command: &str,
        arguments: &Value,
        fd: BorrowedFd<'_>,
    ) -> Result<Value, DirectError> {
        let line = line(command, arguments);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(line.as_bytes())];
        let sent = sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL);
        let whole = io(sent, || format!("send {command} to QEMU"))? == line.len();
        match whole {
            true => self.answer(command),
            false => Err(DirectError::Monitor(command.to_owned())),
        }
    }

    fn answer(&mut self, command: &str) -> Result<Value, DirectError> {
        let end = Instant::now() + LIMIT;
        let no_answer = || DirectError::Monitor(command.to_owned());
        // The limit also applies if QEMU sends other messages without end.
        while Instant::now() < end {
            let mut message = self.receive(end)?.ok_or_else(no_answer)?;
            if let Some(error) = message.get("error") {
                let reason = error.get("desc").and_then(Value::as_str);
                return Err(DirectError::Refused {
                    command: command.to_owned(),
                    reason: reason.unwrap_or("QEMU gave no reason").to_owned(),
                });
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
        Err(no_answer())
    }

    /// Runs a command whose answer is a text, and returns the text.
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

    /// Returns the names of a QEMU object's properties and children that begin with `prefix`.
    ///
    /// # Errors
    /// Fails in the same cases as [`Qmp::execute`].
    pub fn names(&mut self, path: &str, prefix: &str) -> Result<Vec<String>, DirectError> {
        let children = self.children(path)?.into_iter().map(|(name, _)| name);
        Ok(children.filter(|name| name.starts_with(prefix)).collect())
    }

    /// Returns the name of a host device that is assigned to this VM by VFIO, if there is one.
    pub(crate) fn passthrough(&mut self) -> Result<Option<String>, DirectError> {
        // QEMU lists devices with an id in the first folder, and devices without an id in the second.
        for path in [DEVICES, "/machine/peripheral-anon"] {
            let mut children = self.children(path)?.into_iter();
            if let Some((name, _)) = children.find(|(_, kind)| kind.starts_with("child<vfio-")) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the name of the object that keeps this VM's memory from its host, if there is one: SEV, SEV-ES,
    /// SEV-SNP or TDX. Each machine of QEMU has the link (`machine_class_init` in `hw/core/machine.c`), which is
    /// also set by the older property `memory-encryption`. An unset link is the empty path.
    pub(crate) fn encryption(&mut self) -> Result<Option<String>, DirectError> {
        let link = [
            ("path", "/machine"),
            ("property", "confidential-guest-support"),
        ];
        let path = self.text("qom-get", &link)?;
        let last = path.rsplit('/').next();
        Ok(last.filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// Returns names and types of the properties and children of an object of QEMU.
    fn children(&mut self, path: &str) -> Result<Vec<(String, String)>, DirectError> {
        let answer = self.execute("qom-list", &json!({"path": path}))?;
        let all = answer.as_array().into_iter().flatten();
        let text = |one: &Value, key| Some(one.get(key)?.as_str()?.to_owned());
        let children = all.filter_map(|one| Some((text(one, "name")?, text(one, "type")?)));
        Ok(children.collect())
    }

    /// Returns whether the guest runs here: it is not waiting for an incoming migration, and has not
    /// migrated to another host.
    pub(crate) fn is_running(&mut self) -> Result<bool, DirectError> {
        let status = self.execute("query-status", &json!({}))?;
        Ok(status.get("running") == Some(&Value::Bool(true)))
    }

    /// Returns the ids of all memory backends.
    pub(crate) fn memory_backends(&mut self) -> Result<Vec<String>, DirectError> {
        let answer = self.execute("query-memdev", &json!({}))?;
        let all = answer.as_array().into_iter().flatten();
        let ids = all.filter_map(|memory| memory.get("id")?.as_str());
        Ok(ids.map(str::to_owned).collect())
    }

    /// Returns types and ids of the devices that add memory to the machine: `dimm`, `virtio-mem`, `nvdimm` ...
    pub(crate) fn memory_devices(&mut self) -> Result<Vec<(String, String)>, DirectError> {
        let answer = self.execute("query-memory-devices", &json!({}))?;
        let all = answer.as_array().into_iter().flatten();
        let devices = all.filter_map(|device| {
            let kind = device.get("type")?.as_str()?;
            // A device that was made without an id has none here.
            let id = device.pointer("/data/id").and_then(Value::as_str);
            Some((kind.to_owned(), id.unwrap_or("without an id").to_owned()))
        });
        Ok(devices.collect())
    }

    /// Returns the size of a memory backend in bytes. Fails if the memory is not shared.
    pub(crate) fn size_of_shared_memory(&mut self, id: &str) -> Result<u64, DirectError> {
        let answer = self.execute("query-memdev", &json!({}))?;
        let is_it = |memory: &&Value| memory.get("id").and_then(Value::as_str) == Some(id);
        let memory = answer.as_array().and_then(|all| all.iter().find(is_it));
        let memory = memory.ok_or_else(|| DirectError::Monitor("query-memdev".to_owned()))?;
        if memory.get("share") != Some(&Value::Bool(true)) {
            let text = format!("the VM's memory `{id}` is private; start QEMU with `share=on`");
            return Err(DirectError::Memory(text));
        }
        let size = memory.get("size").and_then(Value::as_u64);
        size.ok_or_else(|| DirectError::Monitor("query-memdev".to_owned()))
    }

    /// Returns what happened since the last call. Fails if QEMU has ended.
    pub(crate) fn read_events(&mut self) -> Result<Events, DirectError> {
        for _ in 0..MAX_EVENTS {
            if self.receive(Instant::now())?.is_none() {
                break;
            }
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Returns the next message that is not an event, if it arrives before `end`.
    fn receive(&mut self, end: Instant) -> Result<Option<Value>, DirectError> {
        let mut late = false;
        loop {
            while let Some(message) = self.next_line()? {
                match message.get("event").and_then(Value::as_str) {
                    Some("RESET") => self.events.reset = true,
                    Some("DEVICE_DELETED") => self.events.device_deleted = true,
                    Some(_) => {}
                    None => return Ok(Some(message)),
                }
            }
            // The time limit also ends the loop if QEMU sends messages without end.
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
            .map_err(|_| DirectError::Monitor("a command".to_owned()))
    }

    /// Reads the available bytes, and waits for them until `end`. Returns false if none arrived.
    fn fill(&mut self, end: Instant) -> Result<bool, DirectError> {
        let what = || "read from QEMU's monitor".to_owned();
        // A read timeout of zero would mean no timeout.
        let left = end.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        io(self.socket.set_read_timeout(Some(left)), what)?;
        let mut chunk = [0; 16384];
        match self.socket.read(&mut chunk) {
            Ok(0) => io(Err(std::io::Error::from(ErrorKind::UnexpectedEof)), what),
            Ok(_) if self.pending.len() > LINE => Err(DirectError::Monitor("a command".to_owned())),
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
pub(crate) mod tests {
    use super::*;

    /// Returns a monitor that gives these answers, and the other end of its connection.
    pub(crate) fn answering(answers: &[Value]) -> (Qmp, UnixStream) {
        let (socket, mut qemu) = UnixStream::pair().unwrap();
        for answer in answers {
            let line = format!("{}\n", json!({"return": answer}));
            qemu.write_all(line.as_bytes()).unwrap();
        }
        let qmp = Qmp {
            socket,
            pending: Vec::new(),
            events: Events::default(),
        };
        (qmp, qemu)
    }

    #[test]
    fn answers_and_events_are_distinguished() {
        let (socket, mut qemu) = UnixStream::pair().unwrap();
        let mut qmp = Qmp {
            socket,
            pending: Vec::new(),
            events: Events::default(),
        };
        qemu.write_all(b"{\"QMP\": {}}\n{\"event\": \"RESET\"}\n{\"return\": \"x\"}\n")
            .unwrap();
        assert_eq!(qmp.text("a", &[]).unwrap(), "x");
        assert!(qmp.read_events().unwrap().reset && !qmp.read_events().unwrap().reset);
        qemu.write_all(b"{\"error\": {\"desc\": \"no\"}}\n")
            .unwrap();
        let refused = qmp.execute("b", &json!({})).unwrap_err();
        assert_eq!(refused.to_string(), "QEMU refused b: no");
        drop(qemu);
        assert!(qmp.read_events().is_err());
    }

    #[test]
    fn a_device_of_the_host_is_found_with_an_id_and_without() {
        // QEMU 10.0 lists the folder's own type first, then the children.
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
            let answers: Vec<Value> = answers.into_iter().cloned().collect();
            let (mut qmp, _qemu) = answering(&answers);
            assert_eq!(qmp.passthrough().unwrap().as_deref(), expected);
        }
    }

    /// The first is QEMU 10.0's answer. QEMU starts a machine with the link only on a host that can encrypt memory;
    /// `object_get_link_property` in its `qom/object.c` returns the canonical path of the object.
    #[test]
    fn encrypted_memory_is_found_by_the_machines_link() {
        for (answer, expected) in [
            (r#"{"return": ""}"#, None),
            (r#"{"return": "/objects/sev0"}"#, Some("sev0")),
        ] {
            let (socket, mut qemu) = UnixStream::pair().unwrap();
            writeln!(qemu, "{answer}").unwrap();
            let mut qmp = Qmp {
                socket,
                pending: Vec::new(),
                events: Events::default(),
            };
            assert_eq!(qmp.encryption().unwrap().as_deref(), expected);
            let mut asked = String::new();
            drop(qmp);
            qemu.read_to_string(&mut asked).unwrap();
            let asked: Value = serde_json::from_str(&asked).unwrap();
            assert_eq!(asked["execute"], "qom-get");
            assert_eq!(asked["arguments"]["path"], "/machine");
            assert_eq!(asked["arguments"]["property"], "confidential-guest-support");
        }
    }

    #[test]
    fn a_monitor_that_sends_without_end_is_read_for_a_limited_time() {
        for line in ["{\"event\": \"RESET\"}\n", "{\"QMP\": {}}\n"] {
            let (socket, mut qemu) = UnixStream::pair().unwrap();
            let mut qmp = Qmp {
                socket,
                pending: Vec::new(),
                events: Events::default(),
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
