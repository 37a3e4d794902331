//! The policy that decides whether two members exchange packets directly.

use serde::{Deserialize, Serialize};

use crate::{DirectError, layout};

/// The policy for two members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// They always exchange packets directly.
    #[default]
    Always,
    /// They exchange packets directly, except short packets while CPUs are short.
    Auto,
    /// They never exchange packets directly, and do not see each other's memory.
    Never,
}

/// The policies of a group. Members are named in one order everywhere, which is that of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The policy of pairs that are not listed.
    pub others: Policy,
    /// Pairs with a policy of their own, in either order.
    pub pairs: Vec<(String, String, Policy)>,
}

impl Policies {
    /// Returns the policy for two members.
    #[must_use]
    pub fn of(&self, one: &str, other: &str) -> Policy {
        let is_it = |(a, b, _): &&(String, String, Policy)| {
            (a == one && b == other) || (a == other && b == one)
        };
        let listed = self.pairs.iter().find(is_it);
        listed.map_or(self.others, |(_, _, policy)| *policy)
    }
}

/// Checks the number of members.
///
/// # Errors
/// There are more members than a window has room for.
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
