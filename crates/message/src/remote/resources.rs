//! The system resources that the broker needs. They can outlive its process: the next one
//! adopts them, while the VMs run on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use window::ivshmem::Server;
use window::region::Region;

use super::layout::region_layout;
use crate::address::Board;
use crate::error::Error;

/// A configured member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its name: that of the VM.
    pub name: String,
    /// Its trust group, if it has one. Members of a group share memory.
    pub group: Option<String>,
    /// Its NIC id, if it is not that of its name ([`Board::nic_of`]), which routes to it as well.
    pub nic: Option<u64>,
    /// The member is the uplink to other hosts: it may send for NICs of other hosts.
    pub uplink: bool,
}

impl Member {
    /// Returns its NIC id.
    #[must_use]
    pub fn nic(&self) -> u64 {
        self.nic.unwrap_or_else(|| Board::nic_of(&self.name))
    }
}

/// The regions, doorbells and sockets of a host.
#[derive(Debug)]
pub struct Resources {
    pub(super) regions: Vec<Region>,
    pub(super) member_resources: Vec<MemberResources>,
}

/// The resources of one member.
#[derive(Debug)]
pub struct MemberResources {
    pub(super) member: Member,
    pub(super) server: Option<Server>,
    /// The running VM, if another process accepted it.
    pub(super) connection: Option<Connection>,
}

/// A VM, or a process of the host, that was accepted. Its eventfds are created for this connection,
/// and only it has them. So a guest that fills one, or makes it block, harms only itself, and the
/// next connection has others.
#[derive(Debug)]
pub struct Connection<Fd = OwnedFd> {
    /// Its socket.
    pub socket: Fd,
    /// The eventfd that interrupts it.
    pub interrupt: Fd,
    /// The eventfd by which it wakes the host.
    pub doorbell: Fd,
}

impl Resources {
    /// Creates the resources of these members. Another process accepts their VMs, see
    /// [`Broker::admit`](super::Broker::admit).
    ///
    /// # Errors
    /// A group is too large, or the kernel refuses.
    pub fn create(members: Vec<Member>) -> Result<Self, Error> {
        Self::with(members.into_iter().map(|member| (member, None)).collect())
    }

    /// The same, with a socket `NAME.sock` for each member in `folder`, which is created.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_in(folder: &Path, members: &[Member]) -> Result<Self, Error> {
        std::fs::create_dir_all(folder)?;
        let serve = |member: &Member| {
            let server = Server::bind(&folder.join(format!("{}.sock", member.name)));
            Ok((member.clone(), Some(server?)))
        };
        Self::with(members.iter().map(serve).collect::<Result<_, Error>>()?)
    }

    fn with(members: Vec<(Member, Option<Server>)>) -> Result<Self, Error> {
        let names: Vec<_> = members.iter().map(|(member, _)| member).collect();
        let regions = region_groups(&names).into_iter().map(|(_, count)| {
            let region = Region::create(region_layout(count)?)?;
            Ok(region)
        });
        let regions = regions.collect::<Result<_, Error>>()?;
        let member_resources = members.into_iter().map(|(member, server)| MemberResources {
            member,
            server,
            connection: None,
        });
        Ok(Self {
            regions,
            member_resources: member_resources.collect(),
        })
    }

    /// Takes over the resources that another process created: the regions and the members'
    /// resources, in their order there.
    ///
    /// # Errors
    /// The regions do not match the members.
    pub fn adopt(
        regions: Vec<OwnedFd>,
        member_resources: Vec<MemberResources>,
    ) -> Result<Self, Error> {
        let members: Vec<_> = member_resources
            .iter()
            .map(|resources| &resources.member)
            .collect();
        let region_groups = region_groups(&members);
        if region_groups.len() != regions.len() {
            let text = "there are more groups or fewer than regions".to_owned();
            return Err(Error::Join(text));
        }
        let regions = regions
            .into_iter()
            .zip(region_groups)
            .map(|(file, (_, count))| {
                let region = Region::adopt(file, region_layout(count)?)?;
                Ok(region)
            });
        Ok(Self {
            regions: regions.collect::<Result<_, Error>>()?,
            member_resources,
        })
    }

    /// Replaces the regions that no VM has mapped: `stays` returns whether a member's VM runs.
    /// Processes of the host connect again and get the new regions; no process reads what they
    /// still write into the old ones.
    ///
    /// # Errors
    /// The kernel refuses; regions that were not replaced yet stay.
    pub fn renew(&mut self, stays: impl Fn(usize) -> bool) -> Result<(), Error> {
        let members: Vec<_> = self
            .member_resources
            .iter()
            .map(|resources| &resources.member)
            .collect();
        let numbers = region_of_each(&members);
        for (link_pool, region) in self.regions.iter_mut().enumerate() {
            let mut members_of_region = numbers
                .iter()
                .enumerate()
                .filter(|(_, of)| **of == link_pool);
            if !members_of_region.any(|(member, _)| stays(member)) {
                *region = Region::create(region.layout())?;
            }
        }
        Ok(())
    }

    /// Returns the regions.
    pub fn regions(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.regions.iter().map(AsFd::as_fd)
    }

    /// Returns the members' resources.
    #[must_use]
    pub fn member_resources(&self) -> &[MemberResources] {
        &self.member_resources
    }
}

impl MemberResources {
    /// Takes over a member's resources from another process, with its VM if that process accepted
    /// it.
    #[must_use]
    pub fn adopt(member: Member, connection: Option<Connection>) -> Self {
        Self {
            member,
            server: None,
            connection,
        }
    }

    /// Returns the member.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

/// Returns the groups of members that share a region, with the number of their members. A member
/// without a group has a region of its own. The order is that of the first member of each.
pub(super) fn region_groups(members: &[&Member]) -> Vec<(Option<String>, u32)> {
    let numbers = region_of_each(members);
    let mut region_groups: Vec<(Option<String>, u32)> = Vec::new();
    for (member, number) in members.iter().zip(numbers) {
        match region_groups.get_mut(number) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => region_groups.push((member.group.clone(), 1)),
        }
    }
    region_groups
}

/// Returns the index of each member's region.
pub(super) fn region_of_each(members: &[&Member]) -> Vec<usize> {
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
