#!/bin/busybox sh
# The first program of a guest: hands the ports to DPDK, starts the gateway, and ends the guest with it.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /var/run
/bin/busybox chmod 755 /
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
# Before any driver is there: these devices go to this one and to no other.
for port in $(cat /etc/crem/ports); do
    echo uio_pci_generic >"/sys/bus/pci/devices/$port/driver_override"
done
for module in /modules/*; do
    insmod "$module" || echo "guest: no $module"
done
cat /etc/crem/hugepages >/proc/sys/vm/nr_hugepages
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
guest-relay 4701 /run/status.sock &
mkfifo /run/said
while read -r line; do echo "guest: $line"; done </run/said &
crem-gateway dataplane --config /etc/crem/bootstrap.toml --document /etc/crem/gateway.toml >/run/said &
gateway=$!
# A connection to this port ends it.
(
    nc -l -p 4702 </dev/null >/dev/null
    kill -TERM "$gateway"
) &
wait "$gateway"
echo "guest: the gateway ended with $?"
poweroff -f
