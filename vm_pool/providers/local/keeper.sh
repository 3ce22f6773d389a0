# Holds one desktop: mounts its root, has the OCI runtime start it, and ends it with itself.
#
# Runs as the first process of a pid namespace and in a mount namespace of its own, so that whatever happens to it, the kernel
# ends every process of the desktop and lets go of its mounts. It ends when its input does: when the VM host is gone.
# It removes the desktop's folder last, and only when nothing is left in its cgroup; else the next start of a VM host does both.
#
# Arguments: the desktop's folder (which holds config.json, and the image's layers below parts/), its id, its cgroup, megabytes and
#            files it may write, the owner of its root, the runtime's command, the overlay's lowerdir, whom the desktop asks for
#            names (empty: nobody)
set -eu

folder=$1 id=$2 cgroup=$3 megabytes=$4 files=$5 owner=$6 runtime=$7 layers=$8 nameserver=${9-}
cd "$folder"

leave_nothing() {
    kill -KILL -1 2>/dev/null || true
    tries=100 # processes with much memory need a while to end
    while [ $tries -gt 0 ]; do
        tries=$((tries - 1)) gone=yes
        for place in "/sys/fs/cgroup$cgroup" /sys/fs/cgroup/*"$cgroup"; do
            if [ -d "$place" ] && ! rmdir "$place" 2>/dev/null; then
                gone=no
                echo THAWED 2>/dev/null >"$place/freezer.state" || true # a frozen process does not end
                echo 0 2>/dev/null >"$place/cgroup.freeze" || true
            fi
        done
        [ $gone = no ] || break
        sleep 0.05
    done
    [ $gone = yes ] || return 0
    cd /
    umount -l "$folder/root" "$folder/disk" "$folder/parts" 2>/dev/null || true
    rm -rf --one-file-system "$folder"
    desktops=${folder%/*}
    rmdir "$desktops" "${desktops%/*}" 2>/dev/null || true
}

trap leave_nothing EXIT
mount -t tmpfs -o "size=${megabytes}m,nr_inodes=$files,mode=700" desktop disk
mkdir disk/upper disk/work
chmod 755 disk/upper
chown "$owner:$owner" disk/upper
if [ -n "$nameserver" ]; then
    mkdir disk/upper/etc
    echo "nameserver $nameserver" >disk/upper/etc/resolv.conf
    chmod 755 disk/upper/etc
    chmod 644 disk/upper/etc/resolv.conf
    chown "$owner:$owner" disk/upper/etc disk/upper/etc/resolv.conf
fi
# The layers' paths are short: the guest can read the overlay's options, and the host's paths are none of its business.
# With xino, all of the guest's files are on one device as they are on a machine: programs move within it instead of copying.
mount -t overlay -o "lowerdir=$layers,upperdir=disk/upper,workdir=disk/work,xino=on" desktop root
if ! "$runtime" --root "$folder/runtime" run --detach --bundle . --pid-file init "$id" </dev/null >disk/console 2>&1; then
    tail -n 3 disk/console
    exit 1
fi
echo started
read -r _ || true
