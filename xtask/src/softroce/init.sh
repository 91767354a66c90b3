#!/bin/busybox sh
# First process of the virtual machine: loads modules, mounts the host's root file system, read-only, under a
# throw-away overlay, and runs there the job that comes through the port.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    insmod "/modules/$module" || echo "module $module does not load"
done </modules/order

mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose root /lower
mount -t tmpfs tmpfs /upper
mkdir /upper/data /upper/work
mount -t overlay overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work /host
mount --move /dev /host/dev
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mkdir -p /host/dev/shm /host/dev/pts
mount -t tmpfs tmpfs /host/dev/shm
mount -t devpts devpts /host/dev/pts
mount -t tmpfs tmpfs /host/run
ln -s /proc/self/fd /host/dev/fd
ln -s fd/0 /host/dev/stdin
ln -s fd/1 /host/dev/stdout
ln -s fd/2 /host/dev/stderr

while IFS= read -r line && [ "$line" != '# the job ends here' ]; do
    printf '%s\n' "$line"
done </host/dev/vport0p1 >/host/run/job
exec chroot /host /bin/bash /run/job
