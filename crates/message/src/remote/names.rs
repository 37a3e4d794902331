//! Names of members and of other hosts, which an uplink reports and every board receives.
//!
//! A name has up to 80 bytes, in two control messages. Names come from other hosts, so their text
//! is used as a name only, and their number is limited.

use super::control_message::{ControlMessage, TEXT, Text};
use super::directory::NamedNic;

/// The most hosts and members with a name. A node knows no more hosts.
const LIMIT: usize = 2048;

/// Control messages of a name.
const PARTS: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Names(Vec<Named>);

#[derive(Debug)]
struct Named {
    nic: u64,
    parts: [Text; PARTS],
}

/// Returns the control messages of a name. A longer name is cut.
pub(super) fn messages(named_nic: &NamedNic) -> [ControlMessage; PARTS] {
    let mut parts = [[0; TEXT]; PARTS];
    let places = parts.as_flattened_mut().iter_mut();
    for (target, byte) in places.zip(named_nic.name.bytes()) {
        *target = byte;
    }
    Named {
        nic: named_nic.nic,
        parts,
    }
    .messages()
}

impl Named {
    fn messages(&self) -> [ControlMessage; PARTS] {
        let nic = self.nic;
        let [first, second] = self.parts;
        [(0, first), (1, second)].map(|(part, text)| ControlMessage::Name { nic, part, text })
    }

    fn named_nic(&self) -> Option<NamedNic> {
        let bytes = self.parts.as_flattened();
        let name = bytes.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        Some(NamedNic {
            nic: self.nic,
            name,
        })
    }
}

impl Names {
    /// Stores a part of a name. Returns true if the part is valid and new.
    pub(super) fn update(&mut self, nic: u64, part: u32, text: Text) -> bool {
        let known = self.0.iter().position(|named| named.nic == nic);
        let index = match known {
            Some(index) => index,
            None if self.0.len() < LIMIT => {
                let parts = [[0; TEXT]; PARTS];
                self.0.push(Named { nic, parts });
                self.0.len() - 1
            }
            None => return false,
        };
        let parts = self.0.get_mut(index).map(|named| &mut named.parts);
        let stored = parts.and_then(|parts| parts.get_mut(part as usize));
        stored.is_some_and(|stored| std::mem::replace(stored, text) != text)
    }

    /// Returns the control messages of all names, in the order in which they were reported first.
    pub(super) fn messages(&self) -> impl Iterator<Item = ControlMessage> {
        self.0.iter().flat_map(Named::messages)
    }

    /// Returns all names, in the order of [`messages`](Self::messages).
    pub(super) fn named_nics(&self) -> impl Iterator<Item = NamedNic> {
        self.0.iter().filter_map(Named::named_nic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_nic(nic: u64, name: &str) -> NamedNic {
        let name = name.to_owned();
        NamedNic { nic, name }
    }

    fn report(names: &mut Names, named_nic: &NamedNic) -> bool {
        let mut new = false;
        for message in messages(named_nic) {
            let ControlMessage::Name { nic, part, text } = message else {
                panic!("{message:?}");
            };
            new |= names.update(nic, part, text);
        }
        new
    }

    #[test]
    fn names_are_reported_unchanged_and_again_when_they_change() {
        let mut names = Names::default();
        let long = "x".repeat(79);
        let named_nics = [
            named_nic(1, "alpha"),
            named_nic(2, &long),
            named_nic(3, "γ"),
        ];
        for named_nic in &named_nics {
            assert!(report(&mut names, named_nic));
            assert!(!report(&mut names, named_nic), "nothing new");
        }
        assert_eq!(names.named_nics().collect::<Vec<_>>(), named_nics);
        assert!(report(&mut names, &named_nic(2, "beta")));
        assert_eq!(names.named_nics().nth(1), Some(named_nic(2, "beta")));
        assert_eq!(names.messages().count(), 6);
    }

    #[test]
    fn invalid_parts_are_ignored_and_the_number_of_names_is_limited() {
        let mut names = Names::default();
        assert!(!names.update(1, 2, [1; TEXT]), "there is no such part");
        names.update(2, 0, [0xff; TEXT]);
        assert!(
            names
                .named_nics()
                .all(|named_nic| named_nic.name.is_empty())
        );
        for nic in 10..10_000 {
            names.update(nic, 0, [b'x'; TEXT]);
        }
        assert_eq!(names.named_nics().count() + 1, LIMIT);
    }
}
