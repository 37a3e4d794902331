//! A check's line in the report.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::outcome::{Figure, Outcome, Verdict};

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The check's name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What it shows.
    pub shows: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it failed or did not run.
    pub reason: Option<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Observations in words.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Entry {
    pub(crate) fn new<T>(check: &Check<T>, outcome: Outcome, took: Duration) -> Self {
        Self {
            id: check.id.to_owned(),
            title: check.title.to_owned(),
            shows: check.shows.to_owned(),
            verdict: outcome.verdict,
            reason: outcome.reason,
            figures: outcome.figures,
            notes: outcome.notes,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        }
    }

    /// Returns the entry as a line of the terminal: the verdict, the id, the first figures and the time.
    #[must_use]
    pub fn line(&self) -> String {
        let text = match &self.reason {
            Some(reason) => reason.lines().next().unwrap_or_default().to_owned(),
            None => {
                let figures = self.figures.iter().take(3);
                let figures: Vec<String> = figures
                    .map(|figure| format!("{} {}", figure.name, figure.text()))
                    .collect();
                figures.join(", ")
            }
        };
        let (word, id, seconds) = (self.verdict.word(), &self.id, self.seconds);
        format!("{word:<8}  {id:<20}  {seconds:>5.1} s  {text}")
            .trim_end()
            .to_owned()
    }
}
