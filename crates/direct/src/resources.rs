//! The system resources of a group. They can outlive the process that serves the group: the next
//! process adopts them and finds the VMs in the state in which they are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use window::ivshmem::Doorbell;

use crate::control::Control;
use crate::policy::check_count;
use crate::{DirectError, io};

/// The control window, and the resources of each member, in the order of the member ids.
#[derive(Debug)]
pub struct GroupResources {
    pub(crate) control: Control,
    pub(crate) member_resources: Vec<MemberResources>,
}

/// The resources of one member.
#[derive(Debug)]
pub struct MemberResources {
    pub(crate) name: String,
    /// The same for every VM that ever has this member id, so that no other QEMU has to be given a new one.
    pub(crate) doorbell: Doorbell,
}

impl GroupResources {
    /// Makes the resources of a group.
    ///
    /// # Errors
    /// There are too many members, or the kernel refuses.
    pub fn create(names: &[String]) -> Result<Self, DirectError> {
        check_count(names.len())?;
        let resources = |name: &String| {
            Ok(MemberResources {
                name: name.clone(),
                doorbell: io(Doorbell::new(), || "create a doorbell".to_owned())?,
            })
        };
        Ok(Self {
            control: Control::new()?,
            member_resources: names
                .iter()
                .map(resources)
                .collect::<Result<_, DirectError>>()?,
        })
    }

    /// Takes over the resources that another process made: its window, and its members in the same order.
    ///
    /// # Errors
    /// There are too many members.
    pub fn adopt(
        window: OwnedFd,
        member_resources: Vec<MemberResources>,
    ) -> Result<Self, DirectError> {
        check_count(member_resources.len())?;
        let control = Control::adopt(window);
        Ok(Self {
            control,
            member_resources,
        })
    }

    /// Returns the control window.
    #[must_use]
    pub fn window(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Returns the resources of each member.
    #[must_use]
    pub fn member_resources(&self) -> &[MemberResources] {
        &self.member_resources
    }
}

impl MemberResources {
    /// Takes over the resources of a member that another process made.
    #[must_use]
    pub fn adopt(name: String, doorbell: OwnedFd) -> Self {
        Self {
            name,
            doorbell: Doorbell::adopt(doorbell),
        }
    }

    /// Returns the member's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member's doorbell.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
