#!/bin/bash
# Starts a separate host for libvirt: in new mount, UTS and PID namespaces, a libvirtd with folders that
# no other process sees. libvirtd and every VM that it started end with the first process here.
#   host.sh NAME FOLDER IMAGE CACHE
# FOLDER/run is /run/vicinity here, IMAGE the guests' kernel and initramfs. QEMU runs as an ordinary
# user in the group kvm, as Debian's packages have it.
set -euo pipefail
readonly name=$1 folder=$2 image=$3 cache=$4 user=64055 kvm=64056

mount --make-rprivate /
# FOLDER is below /run, and stays where it is.
mkdir "$folder/new"
mount -t tmpfs -o mode=755 tmpfs "$folder/new"
mkdir -p "$folder/new/vicinity" "$folder/new/${folder#/run/}"
mount --bind "$folder/run" "$folder/new/vicinity"
mount --bind "$folder" "$folder/new/${folder#/run/}"
mount --no-mtab --move "$folder/new" /run
for place in /var /etc/libvirt; do
    mount -t tmpfs -o mode=755 tmpfs "$place"
done
mkdir -p /var/lib/libvirt/images /var/cache/libvirt /var/log/libvirt
mount --bind "$image" /var/lib/libvirt/images
mount --bind "$cache" /var/cache/libvirt
# Without control groups, libvirt leaves none behind.
umount --recursive --lazy /sys/fs/cgroup || true
mount -t proc proc /proc

{
    grep -v '^libvirt-qemu:' /etc/passwd
    echo "libvirt-qemu:x:$user:$user::/nonexistent:/usr/sbin/nologin"
} >/run/passwd
{
    grep -Ev '^(libvirt-qemu|kvm):' /etc/group
    echo "libvirt-qemu:x:$user:"
    echo "kvm:x:$kvm:libvirt-qemu"
} >/run/group
mount --bind /run/passwd /etc/passwd
mount --bind /run/group /etc/group
# libvirtd looks for the name of its host again and again, and where no name server answers, waits for 9 s each time.
{
    cat /etc/hosts
    echo "127.0.0.1 $name"
} >/run/hosts
mount --bind /run/hosts /etc/hosts
hostname "$name"
# The domains are emulated. Where KVM is there and does not work, libvirtd asks QEMU for its capabilities before each of them.
if [ -e /dev/kvm ]; then
    install --mode 000 /dev/null /run/no-kvm
    mount --bind /run/no-kvm /dev/kvm
fi

cat >/etc/libvirt/qemu.conf <<'TEXT'
security_driver = "none"
cgroup_controllers = []
namespaces = []
# Other hosts use the guest's files, too, so libvirt must not change their owner.
dynamic_ownership = 0
stdio_handler = "file"
TEXT
# libvirt migrates only to a host with another UUID.
cat >"$folder/libvirtd.conf" <<TEXT
unix_sock_dir = "$folder"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
log_outputs = "3:file:$folder/libvirtd.log"
TEXT
# The first process stays a shell, because the first process has to reap QEMUs whose parent has ended.
libvirtd --config "$folder/libvirtd.conf" --pid-file "$folder/libvirtd.pid" &
wait $!
