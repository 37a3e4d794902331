#!/bin/bash
# Boots the Debian in a folder, with systemd as its first process, in its own namespaces and its own
# control group:
#   boot.sh ROOT
# systemd runs /try in ROOT as a service. This script exits with its exit code; its output is in /said.
set -euo pipefail
readonly root=$1

if [ "${2-}" != inside ]; then
    top=$root/mnt
    mount --make-rprivate /
    mount -t cgroup2 cgroup2 "$top"
    # Remove the control groups of runs that were killed.
    for old in "$top"/vicinity-package-*; do
        [ ! -d "$old" ] || [ -d "/proc/${old##*-}" ] || find "$old" -depth -type d -delete
    done
    group=$top/vicinity-package-$$
    mkdir "$group"
    code=0
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec setpriv --pdeathsig KILL unshare --mount --uts --pid --net --ipc --cgroup \
            --fork --kill-child "$0" "$root" inside
    ) || code=$?
    until rmdir "$group" 2>/dev/null; do
        find "$group" -mindepth 1 -depth -type d -delete || sleep 0.1
    done
    exit "$code"
fi

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for place in run tmp dev; do
    mount -t tmpfs -o mode=755 tmpfs "$root/$place"
done
mkdir "$root"/dev/{pts,shm,net}
for device in null zero full random urandom tty net/tun; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up
cat >"$root/etc/systemd/system/try.service" <<'TEXT'
[Unit]
SuccessAction=exit
FailureAction=exit
FailureActionExitStatus=1

[Service]
Type=oneshot
ExecStart=/bin/bash /try
StandardOutput=append:/said
StandardError=append:/said
TEXT
cd "$root"
# Change the root by pivot_root: the kernel creates no user namespace for a process in a chroot.
mkdir -p old
pivot_root . old
umount --lazy /old
rmdir /old
exec /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=try.service --log-target=null --show-status=0
