//! Whether two members are to exchange packets directly.

use serde::{Deserialize, Serialize};

use crate::{DirectError, layout};

/// What the owner says of two members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// They do.
    #[default]
    Always,
    /// They do, but while CPUs are short not with short packets.
    Auto,
    /// They do not, and do not see each other's memory.
    Never,
}

/// What the owner says of a group's members: they are named in one order everywhere, which is
/// that of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// For pairs that are not listed.
    pub others: Policy,
    /// Pairs, in either order.
    pub pairs: Vec<(String, String, Policy)>,
}

impl Policies {
    /// What holds for these two.
    #[must_use]
    pub fn of(&self, one: &str, other: &str) -> Policy {
        let is_it = |(a, b, _): &&(String, String, Policy)| {
            (a == one && b == other) || (a == other && b == one)
        };
        let listed = self.pairs.iter().find(is_it);
        listed.map_or(self.others, |(_, _, policy)| *policy)
    }
}

/// # Errors
/// More members than a window has room for.
pub(crate) fn check_count(count: usize) -> Result<(), DirectError> {
    match count <= layout::MEMBERS as usize {
        true => Ok(()),
        false => Err(DirectError::TooMany),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_one_in_either_order() {
        let policies = Policies {
            others: Policy::Always,
            pairs: vec![("a".to_owned(), "b".to_owned(), Policy::Never)],
        };
        assert_eq!(policies.of("a", "b"), Policy::Never);
        assert_eq!(policies.of("b", "a"), Policy::Never);
        assert_eq!(policies.of("a", "c"), Policy::Always);
    }
}
