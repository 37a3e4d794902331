//! Checks whether libvirt's QEMU, which does not run as root, may connect to the ports' sockets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::check::Check;

/// The users that libvirt runs QEMU as: on Debian, and on other distributions.
const USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// A user other than root, with its groups.
#[derive(Debug)]
struct User {
    name: String,
    id: u32,
    groups: Vec<u32>,
}

/// Returns the checks; none if no such user exists.
pub(super) fn checks<'a>(sockets: impl Iterator<Item = &'a Path>) -> Vec<Check> {
    let [passwd, group] =
        ["/etc/passwd", "/etc/group"].map(|file| fs::read_to_string(file).unwrap_or_default());
    let Some(user) = USERS.iter().find_map(|name| find(name, &passwd, &group)) else {
        return Vec::new();
    };
    vec![check(&user, sockets)]
}

fn find(name: &str, passwd: &str, group: &str) -> Option<User> {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let mut users = passwd.lines().map(fields);
    let user = users.find(|user| user.first().is_some_and(|it| it == name))?;
    let member = |group: &Vec<String>| {
        let members = group.get(3)?;
        let id = group.get(2)?.parse().ok()?;
        members.split(',').any(|it| it == name).then_some(id)
    };
    let mut groups: Vec<u32> = group
        .lines()
        .filter_map(|line| member(&fields(line)))
        .collect();
    groups.push(user.get(3)?.parse().ok()?);
    Some(User {
        name: name.to_owned(),
        id: user.get(2)?.parse().ok()?,
        groups,
    })
}

fn check<'a>(user: &User, mut sockets: impl Iterator<Item = &'a Path>) -> Check {
    let name = "permissions";
    match sockets.find_map(|socket| user.stopped_at(socket)) {
        None => Check::ok(
            name,
            format!("{} can connect to every port's socket", user.name),
        ),
        Some(place) => Check::warn(
            name,
            format!(
                "libvirt's QEMU runs as {}, which may not use {}",
                user.name,
                place.display()
            ),
            "run the daemon with the group kvm, as the package's unit does (`setpriv --regid kvm --clear-groups \
                vicinity serve`), and add that user to the group: `usermod -aG kvm USER`",
        ),
    }
}

impl User {
    /// Returns the first folder on the path, or the socket, that this user may not use. Ignores
    /// paths that do not exist.
    fn stopped_at(&self, socket: &Path) -> Option<PathBuf> {
        let mut path: Vec<&Path> = socket.ancestors().collect();
        path.reverse();
        let stops = |place: &&Path| {
            // A folder needs search permission, a socket needs write permission.
            let bit = if *place == socket { 2 } else { 1 };
            fs::metadata(place).is_ok_and(|it| !self.may(it.mode(), it.uid(), it.gid(), bit))
        };
        path.into_iter().find(stops).map(Path::to_owned)
    }

    /// Returns whether the permissions of the owner, else the group, else others include `bit`:
    /// `path_resolution(7)`.
    fn may(&self, mode: u32, owner: u32, group: u32, bit: u32) -> bool {
        let shift = match (owner == self.id, self.groups.contains(&group)) {
            (true, _) => 6,
            (_, true) => 3,
            _ => 0,
        };
        mode >> shift & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::net::UnixListener;

    use super::*;

    const PASSWD: &str = "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:994::/:/bin/false\n";
    const GROUP: &str = "kvm:x:994:\nvms:x:70001:libvirt-qemu,other\nwheel:x:10:other\n";

    #[test]
    fn a_user_has_the_groups_of_both_files() {
        let user = find("libvirt-qemu", PASSWD, GROUP).unwrap();
        assert_eq!((user.id, user.groups), (64055, vec![70001, 994]));
        assert!(find("qemu", PASSWD, GROUP).is_none());
    }

    /// Needs root, because the test changes the group of files.
    #[test]
    fn the_place_that_stops_it_is_named() {
        let user = find("libvirt-qemu", PASSWD, GROUP).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        let network = folder.path().join("lan");
        fs::create_dir(&network).unwrap();
        let socket = network.join("web.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        open(&network, 0o750);
        open(&socket, 0o660);
        let said = |user: &User| format!("{:?}", check(user, [socket.as_path()].into_iter()));
        assert!(said(&user).contains("may not use") && said(&user).contains("lan\""));
        chown(&network, None, Some(70001)).unwrap();
        assert_eq!(user.stopped_at(&socket), Some(socket.clone()));
        chown(&socket, None, Some(994)).unwrap();
        assert!(
            said(&user).contains("can connect to every"),
            "{}",
            said(&user)
        );
    }
}
