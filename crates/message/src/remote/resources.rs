//! What the host needs of the system to serve its members. It can outlive the process that serves
//! them: the next one adopts it, and finds the VMs as they are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use window::ivshmem::Server;
use window::region::Region;

use super::layout::region_layout;
use crate::address::Board;
use crate::error::Error;

/// Who may take part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its name: the VM's.
    pub name: String,
    /// Its trust group, if it has one. Members of a group share memory.
    pub group: Option<String>,
    /// Its NIC id, if that is not the name's ([`Board::nic_of`]); it has that as well.
    pub nic: Option<u64>,
    /// It is the way to other hosts: it may speak for NICs that are not of this one.
    pub uplink: bool,
}

impl Member {
    /// Its NIC id.
    #[must_use]
    pub fn nic(&self) -> u64 {
        self.nic.unwrap_or_else(|| Board::nic_of(&self.name))
    }
}

/// Regions, doorbells and sockets of a host.
#[derive(Debug)]
pub struct Resources {
    pub(super) regions: Vec<Region>,
    pub(super) places: Vec<Place>,
}

/// What there is of one member.
#[derive(Debug)]
pub struct Place {
    pub(super) member: Member,
    pub(super) server: Option<Server>,
    /// The VM that runs, if another process accepted it.
    pub(super) guest: Option<Guest>,
}

/// A VM, or a process of the host, that was accepted. Its eventfds are made for this connection, and
/// only it has them: whoever fills one, or makes it block, does so to itself, and the next that
/// connects has others.
#[derive(Debug)]
pub struct Guest<Fd = OwnedFd> {
    /// Its socket.
    pub socket: Fd,
    /// The eventfd that interrupts it.
    pub bell: Fd,
    /// The eventfd that it wakes the host with.
    pub doorbell: Fd,
}

impl Resources {
    /// Make them for these members. Somebody else accepts their VMs, see [`Switchboard::admit`](super::Switchboard::admit).
    ///
    /// # Errors
    /// A group is too large, or the kernel refuses.
    pub fn make(members: Vec<Member>) -> Result<Self, Error> {
        Self::with(members.into_iter().map(|member| (member, None)).collect())
    }

    /// The same, with a socket `NAME.sock` for each in `folder`, which is made.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub fn make_in(folder: &Path, members: &[Member]) -> Result<Self, Error> {
        std::fs::create_dir_all(folder)?;
        let serve = |member: &Member| {
            let server = Server::bind(&folder.join(format!("{}.sock", member.name)));
            Ok((member.clone(), Some(server?)))
        };
        Self::with(members.iter().map(serve).collect::<Result<_, Error>>()?)
    }

    fn with(members: Vec<(Member, Option<Server>)>) -> Result<Self, Error> {
        let names: Vec<_> = members.iter().map(|(member, _)| member).collect();
        let regions = halls(&names).into_iter().map(|(_, seats)| {
            let region = Region::create(region_layout(seats)?)?;
            Ok(region)
        });
        let regions = regions.collect::<Result<_, Error>>()?;
        let places = members.into_iter().map(|(member, server)| Place {
            member,
            server,
            guest: None,
        });
        Ok(Self {
            regions,
            places: places.collect(),
        })
    }

    /// Take over what another process made: the regions and the places, each in their order there.
    ///
    /// # Errors
    /// These are not their regions.
    pub fn adopt(regions: Vec<OwnedFd>, places: Vec<Place>) -> Result<Self, Error> {
        let members: Vec<_> = places.iter().map(|place| &place.member).collect();
        let halls = halls(&members);
        if halls.len() != regions.len() {
            let text = "there are more groups or fewer than regions".to_owned();
            return Err(Error::Join(text));
        }
        let regions = regions.into_iter().zip(halls).map(|(file, (_, seats))| {
            let region = Region::adopt(file, region_layout(seats)?)?;
            Ok(region)
        });
        Ok(Self {
            regions: regions.collect::<Result<_, Error>>()?,
            places,
        })
    }

    /// Make the regions anew that no VM has: `stays` says whether a place's VM runs. Processes of the
    /// host connect again and get the new ones; what they still write into the old ones, nobody reads.
    ///
    /// # Errors
    /// The kernel refuses; then they are as they were.
    pub fn renew(&mut self, stays: impl Fn(usize) -> bool) -> Result<(), Error> {
        let members: Vec<_> = self.places.iter().map(|place| &place.member).collect();
        let numbers = hall_of_each(&members);
        for (link_pool, region) in self.regions.iter_mut().enumerate() {
            let mut places = numbers
                .iter()
                .enumerate()
                .filter(|(_, of)| **of == link_pool);
            if !places.any(|(place, _)| stays(place)) {
                *region = Region::create(region.layout())?;
            }
        }
        Ok(())
    }

    /// The regions.
    pub fn regions(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.regions.iter().map(AsFd::as_fd)
    }

    /// The members' places.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }
}

impl Place {
    /// Take over one that another process made; with the member's VM, if it accepted that.
    #[must_use]
    pub fn adopt(member: Member, guest: Option<Guest>) -> Self {
        Self {
            member,
            server: None,
            guest,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

/// Who shares a region: the group, if it is one, and how many they are. In the order of the first of
/// each.
pub(super) fn halls(members: &[&Member]) -> Vec<(Option<String>, u32)> {
    let numbers = hall_of_each(members);
    let mut halls: Vec<(Option<String>, u32)> = Vec::new();
    for (member, number) in members.iter().zip(numbers) {
        match halls.get_mut(number) {
            Some((_, seats)) => *seats = seats.saturating_add(1),
            None => halls.push((member.group.clone(), 1)),
        }
    }
    halls
}

/// The number of each member's region.
pub(super) fn hall_of_each(members: &[&Member]) -> Vec<usize> {
    let mut firsts: Vec<&Member> = Vec::new();
    let mut numbers = Vec::new();
    for &member in members {
        let same = |first: &&Member| first.group.is_some() && first.group == member.group;
        let number = firsts.iter().position(same).unwrap_or(firsts.len());
        if number == firsts.len() {
            firsts.push(member);
        }
        numbers.push(number);
    }
    numbers
}
