//! A headless Chromium, driven by the Chrome DevTools Protocol over its pipe: messages end with a zero byte
//! (`content/browser/devtools/devtools_pipe_handler.cc`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

/// The browser, which ends with this value.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    /// The sessions of the open page's workers, which are targets of their own.
    workers: Vec<String>,
    target: Option<Value>,
    /// Runs in each page before its own scripts.
    first: Option<String>,
    next: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// What a page must not do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Faults {
    /// Errors and warnings in the console, exceptions, and violations of the policy.
    pub(crate) console: Vec<String>,
    /// Requests to other origins.
    pub(crate) foreign: Vec<String>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads commands from descriptor 3, and writes to 4.
        let line = "exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec chromium \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", line, "sh"])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // Chromium leaves some of its files there.
            .env("TMPDIR", profile.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            workers: Vec::new(),
            target: None,
            first: None,
            next: 0,
            events: Vec::new(),
            _profile: profile,
        }
    }

    /// Opens a new page in a window of this size; `dark` is the preferred colour scheme.
    pub(crate) fn open(&mut self, url: &str, (width, height): (u32, u32), dark: bool) {
        self.session = None;
        if let Some(target) = self.target.take() {
            // Chromium opens six connections to a host, and each page keeps one.
            self.call("Target.closeTarget", json!({ "targetId": target }));
        }
        self.events.clear();
        self.workers.clear();
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = self.call(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        self.target = Some(target["targetId"].clone());
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        // Workers start when their events are on their way, too.
        self.call(
            "Target.setAutoAttach",
            json!({ "autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true }),
        );
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        );
        if let Some(source) = self.first.clone() {
            self.call(
                "Page.addScriptToEvaluateOnNewDocument",
                json!({ "source": source }),
            );
        }
        let scheme = if dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        self.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Has a script run in each page that is opened from now on, before its own scripts.
    pub(crate) fn before_each_page(&mut self, script: &str) {
        self.first = Some(script.to_owned());
    }

    /// Collects the garbage of the page, and returns the bytes of its heap that are in use.
    pub(crate) fn heap_after_collection(&mut self) -> f64 {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let heap = self.call("Runtime.getHeapUsage", json!({}));
        heap["usedSize"].as_f64().unwrap()
    }

    /// Returns what an expression is; a promise is awaited.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, for at most 20 s.
    pub(crate) fn until(&mut self, expression: &str) {
        let script = format!(
            "new Promise(done => {{ const end = performance.now() + 20000; (function look() {{ let is = false; \
             try {{ is = Boolean({expression}); }} catch {{}} if (is) done(true); else if (performance.now() > end) \
             done(false); else setTimeout(look, 50); }})(); }})"
        );
        let came = self.eval(&script);
        if came != true {
            let text = self.eval("document.body.innerText");
            panic!("never: {expression}\n{}", text.as_str().unwrap_or_default());
        }
    }

    /// Clicks the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{block: 'center'}}); const b = \
             e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()",
            json!(selector)
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            self.call(
                "Input.dispatchMouseEvent",
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 }),
            );
        }
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text into the element that has the focus.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Returns the seconds of CPU time that the page's main thread has used.
    pub(crate) fn main_thread_seconds(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", json!({}));
        let metrics = metrics["metrics"].as_array().unwrap();
        let all = metrics
            .iter()
            .find(|metric| metric["name"] == "TaskDuration");
        all.unwrap()["value"].as_f64().unwrap()
    }

    /// Keeps a picture of the window in the folder of `VICINITY_SCREENSHOTS`, if there is one.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("VICINITY_SCREENSHOTS") else {
            return;
        };
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(picture["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Returns why loads failed since the page was opened.
    pub(crate) fn failed_loads(&mut self) -> Vec<String> {
        // Events that are on their way come before the answer.
        self.eval("1");
        let failed = self.events.iter();
        let failed = failed.filter(|event| event["method"] == "Network.loadingFailed");
        failed.map(|event| event["params"].to_string()).collect()
    }

    /// Returns what the page did that it must not do, since it was opened.
    pub(crate) fn faults(&mut self, origin: &str) -> Faults {
        // Events that are on their way come before the answer.
        self.eval("1");
        let mut faults = Faults::default();
        for event in &self.events {
            let told = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.consoleAPICalled"
                    if told["type"] == "error" || told["type"] == "warning" =>
                {
                    faults.console.push(told.to_string());
                }
                "Runtime.exceptionThrown" | "Log.entryAdded" => {
                    faults.console.push(told.to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = told["request"]["url"].as_str().unwrap();
                    if !url.starts_with(origin) && !url.starts_with("data:") {
                        faults.foreign.push(url.to_owned());
                    }
                }
                _ => {}
            }
        }
        faults
    }

    fn call(&mut self, method: &str, parameters: impl Into<Value>) -> Value {
        let session = self.session.clone();
        let id = self.send(session.as_deref(), method, &parameters.into());
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(
                bytes.pop(),
                Some(0),
                "Chromium ended; is the package chromium installed?"
            );
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            // Only events of the open page and its workers count.
            let of = answer["sessionId"].as_str();
            let is_worker = self
                .workers
                .iter()
                .any(|worker| Some(worker.as_str()) == of);
            if of != self.session.as_deref() && !is_worker {
                continue;
            }
            if of.is_some() && answer["method"] == "Target.attachedToTarget" {
                let worker = answer["params"]["sessionId"].as_str().unwrap().to_owned();
                for method in ["Runtime.enable", "Log.enable", "Network.enable"] {
                    self.send(Some(&worker), method, &json!({}));
                }
                self.send(Some(&worker), "Runtime.runIfWaitingForDebugger", &json!({}));
                self.workers.push(worker);
            }
            self.events.push(answer);
        }
    }

    /// Sends a command, to the browser itself without a session. Returns its number.
    fn send(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> u64 {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        self.next
    }
}

impl Drop for Browser {
    /// Asks the browser to end, because its other processes write to the profile after a kill of the first one.
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        // It may have ended by itself.
        drop(
            self.to
                .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0"),
        );
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(Duration::from_millis(10));
        }
        let group = Pid::from_child(&self.child);
        // After a clean end, no process of the group is left.
        _ = kill_process_group(group, Signal::KILL);
        drop(self.child.wait());
    }
}
