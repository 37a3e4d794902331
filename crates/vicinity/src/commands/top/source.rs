//! The source of the figures: the host with the daemon's state, or a recording.

use std::path::{Path, PathBuf};

use observe::reading::Reading;

use crate::client;
use crate::commands::failure::Failure;
use crate::live::{ApiState, Live, Recording, Sampler};

/// Gives one interval after another.
#[derive(Debug)]
pub(crate) enum Source {
    /// This host.
    Host(Box<HostSource>),
    /// A file of `--record`.
    Replay(Recording),
}

/// Takes readings of the host, with the daemon's state.
#[derive(Debug)]
pub(crate) struct HostSource {
    runtime_dir: PathBuf,
    sampler: Sampler,
}

impl Source {
    pub(crate) fn of_host(runtime_dir: &Path, watts_per_cpu: f64) -> Self {
        Self::Host(Box::new(HostSource {
            runtime_dir: runtime_dir.to_owned(),
            sampler: Sampler::new(watts_per_cpu, true),
        }))
    }

    pub(crate) fn replay(file: &Path) -> Result<Self, Failure> {
        Ok(Self::Replay(Recording::open(file)?))
    }

    /// Begins: the figures of a host are those since this call.
    pub(crate) fn begin(&mut self) {
        if let Self::Host(host) = self {
            host.next();
        }
    }

    /// Returns the figures since the last call, or the next ones of the recording; `None` at its end.
    pub(crate) fn next(&mut self) -> Result<Option<Live>, Failure> {
        match self {
            Self::Host(host) => Ok(host.next()),
            Self::Replay(recording) => Ok(recording.next()?),
        }
    }
}

impl HostSource {
    pub(crate) fn read(&mut self) -> Reading {
        let state = api_state(&self.runtime_dir);
        self.sampler.read(&state)
    }

    fn next(&mut self) -> Option<Live> {
        let state = api_state(&self.runtime_dir);
        self.sampler.next(&state)
    }
}

/// Returns the daemon's state; empty without a daemon, because `vicinity top` watches VMs also without one.
pub(crate) fn api_state(runtime_dir: &Path) -> ApiState {
    let request = client::ApiRequest::get("/v1/ports");
    let Ok((pid, ports)) = client::request(runtime_dir, request) else {
        return ApiState::default();
    };
    ApiState {
        pid: Some(pid),
        ports,
        networks: client::get(runtime_dir, "/v1/networks").unwrap_or_default(),
        direct: client::get(runtime_dir, "/v1/direct").unwrap_or_default(),
        spaces: client::get(runtime_dir, "/v1/spaces").unwrap_or_default(),
        messages: client::get(runtime_dir, "/v1/messages").unwrap_or_default(),
    }
}
