//! Landlock: denies files by path, network ports, and signals to other processes.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};

/// The newest version of Landlock whose access rights this code uses.
const NEWEST: ABI = ABI::V6;

/// Denies everything that Landlock can deny, without exceptions.
pub(crate) fn enter() -> Result<(), String> {
    match deny() {
        Ok(RulesetStatus::NotEnforced) => Err("the kernel has no Landlock".to_owned()),
        // An older Landlock can deny less; every version denies the use of files.
        Ok(RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn deny() -> Result<RulesetStatus, landlock::RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    Ok(rules.create()?.restrict_self()?.ruleset)
}

/// Returns the version that the kernel offers, 0 for none.
#[allow(unsafe_code)]
pub(crate) fn version() -> u32 {
    /// `LANDLOCK_CREATE_RULESET_VERSION` (linux/landlock.h)
    const ASK: u32 = 1;
    // SAFETY: with this flag the call takes no memory and makes nothing; it returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            ASK,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    /// Only this test's thread is confined.
    #[test]
    fn files_have_no_names_any_more() {
        assert!(std::fs::File::open("/proc/self/status").is_ok());
        super::enter().unwrap();
        let refused = std::fs::File::open("/proc/self/status").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(super::version() > 0);
    }
}
