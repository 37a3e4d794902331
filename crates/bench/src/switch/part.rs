//! The parts of the benchmark.

use std::fmt;
use std::str::FromStr;

/// A part of the benchmark that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The maximum rate of frames of each length, with one pair of ports.
    Frames,
    /// The maximum rate with more pairs of ports.
    Pairs,
    /// Latency at shares of the maximum rate, and the CPU time of a light load.
    Latency,
    /// Frames of 64 KB that need segmentation.
    Gso,
    /// The rate with few and with many FDB entries.
    Fdb,
    /// The cost of an idle switch.
    Idle,
}

impl Part {
    /// All parts, in the order in which they run.
    pub const ALL: [Self; 6] = [
        Self::Frames,
        Self::Pairs,
        Self::Latency,
        Self::Gso,
        Self::Fdb,
        Self::Idle,
    ];

    /// The deprecated name of [`Self::Fdb`], which `from_str` accepts for one release.
    pub const OLD_FDB: &'static str = "residents";

    fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Pairs => "pairs",
            Self::Latency => "latency",
            Self::Gso => "gso",
            Self::Fdb => "fdb",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = if text == Self::OLD_FDB { "fdb" } else { text };
        let found = Self::ALL.into_iter().find(|part| part.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no such part; the parts are: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_as_it_is_written() {
        for part in Part::ALL {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        assert_eq!(Part::OLD_FDB.parse(), Ok(Part::Fdb));
        let error = "frame".parse::<Part>().unwrap_err();
        assert!(error.contains("frames, pairs"), "{error}");
    }
}
