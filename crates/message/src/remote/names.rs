//! Names of members and of other hosts, on their way from an uplink to every board.
//!
//! A name has up to 80 bytes, in two notes. Names come from other hosts, so a text is believed to be
//! nothing but one, and there are only so many.

use super::control_message::{ControlMessage, TEXT, Text};
use super::directory::Face;

/// Hosts and members that are known by name. A node knows no more hosts.
const MOST: usize = 2048;

/// Notes of a name.
const PARTS: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Names(Vec<Named>);

#[derive(Debug)]
struct Named {
    nic: u64,
    parts: [Text; PARTS],
}

/// What says a name. One that is too long is cut.
pub(super) fn notes(face: &Face) -> [ControlMessage; PARTS] {
    let mut parts = [[0; TEXT]; PARTS];
    let places = parts.as_flattened_mut().iter_mut();
    for (place, byte) in places.zip(face.name.bytes()) {
        *place = byte;
    }
    Named {
        nic: face.nic,
        parts,
    }
    .notes()
}

impl Named {
    fn notes(&self) -> [ControlMessage; PARTS] {
        let nic = self.nic;
        let [first, second] = self.parts;
        [(0, first), (1, second)].map(|(part, text)| ControlMessage::Name { nic, part, text })
    }

    fn face(&self) -> Option<Face> {
        let bytes = self.parts.as_flattened();
        let name = bytes.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        Some(Face {
            nic: self.nic,
            name,
        })
    }
}

impl Names {
    /// Part of a name was said. True when it is one, and not known yet.
    pub(super) fn hear(&mut self, nic: u64, part: u32, text: Text) -> bool {
        let known = self.0.iter().position(|named| named.nic == nic);
        let place = match known {
            Some(place) => place,
            None if self.0.len() < MOST => {
                let parts = [[0; TEXT]; PARTS];
                self.0.push(Named { nic, parts });
                self.0.len() - 1
            }
            None => return false,
        };
        let parts = self.0.get_mut(place).map(|named| &mut named.parts);
        let place = parts.and_then(|parts| parts.get_mut(part as usize));
        place.is_some_and(|place| std::mem::replace(place, text) != text)
    }

    /// All of them, in the order in which they were first said.
    pub(super) fn notes(&self) -> impl Iterator<Item = ControlMessage> {
        self.0.iter().flat_map(Named::notes)
    }

    /// See [`notes`](Self::notes).
    pub(super) fn faces(&self) -> impl Iterator<Item = Face> {
        self.0.iter().filter_map(Named::face)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn face(nic: u64, name: &str) -> Face {
        let name = name.to_owned();
        Face { nic, name }
    }

    fn tell(names: &mut Names, face: &Face) -> bool {
        let mut new = false;
        for note in notes(face) {
            let ControlMessage::Name { nic, part, text } = note else {
                panic!("{note:?}");
            };
            new |= names.hear(nic, part, text);
        }
        new
    }

    #[test]
    fn names_are_told_as_they_are_and_again_when_they_change() {
        let mut names = Names::default();
        let long = "x".repeat(79);
        let faces = [face(1, "alpha"), face(2, &long), face(3, "γ")];
        for face in &faces {
            assert!(tell(&mut names, face));
            assert!(!tell(&mut names, face), "nothing new");
        }
        assert_eq!(names.faces().collect::<Vec<_>>(), faces);
        assert!(tell(&mut names, &face(2, "beta")));
        assert_eq!(names.faces().nth(1), Some(face(2, "beta")));
        assert_eq!(names.notes().count(), 6);
    }

    #[test]
    fn nonsense_is_no_name_and_there_are_only_so_many() {
        let mut names = Names::default();
        assert!(!names.hear(1, 2, [1; TEXT]), "there is no such part");
        names.hear(2, 0, [0xff; TEXT]);
        assert!(names.faces().all(|face| face.name.is_empty()));
        for nic in 10..10_000 {
            names.hear(nic, 0, [b'x'; TEXT]);
        }
        assert_eq!(names.faces().count() + 1, MOST);
    }
}
