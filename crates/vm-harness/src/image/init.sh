#!/bin/bash
# The first process of a guest. It reads from the kernel command line:
#   lab.host=NAME             host name
#   lab.nic=MAC,ADDRESS/BITS  address of the NIC with this MAC (may be repeated)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root TERM=linux PS1='\u@\h:\w# '
# An emulated guest takes some 30 ms to start a program, so one program does all of a kind.
mount --all
ln -sf /proc/self/fd /dev/fd

read -ra modules </lab/modules
modprobe --all "${modules[@]}"

nics=()
read -ra words </proc/cmdline
for word in "${words[@]}"; do
    case $word in
    lab.host=*) export HOSTNAME=${word#*=} ;;
    lab.nic=*) nics+=("${word#*=}") ;;
    esac
done
echo "$HOSTNAME" >/proc/sys/kernel/hostname
echo "127.0.0.1 localhost $HOSTNAME" >/etc/hosts

ip link set lo up
for nic in "${nics[@]}"; do
    for device in /sys/class/net/*; do
        if [ "$(<"$device/address")" = "${nic%%,*}" ]; then
            ip addr add "${nic#*,}" dev "${device##*/}"
            ip link set "${device##*/}" up
        fi
    done
done

# The image has no udev to link the agent's port, so this loop finds the port by its name.
for port in /sys/class/virtio-ports/*; do
    if [ "$(<"$port/name")" = org.qemu.guest_agent.0 ]; then
        qemu-ga --method=virtio-serial --path="/dev/${port##*/}" --statedir=/run \
            --pidfile=/run/qemu-ga.pid --daemonize
    fi
done

cd /root || exit
while true; do
    setsid --ctty --wait bash --login </dev/ttyS0 >/dev/ttyS0 2>&1
    sleep 1
done
