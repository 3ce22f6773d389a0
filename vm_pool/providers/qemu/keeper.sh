# Holds one QEMU: kills it and removes its folder when its own input ends, which is when the VM host is gone.
#
# Its output is QEMU's monitor: a socket, which QEMU reads too.
# Arguments: the VM's folder, then QEMU's command
folder=$1
shift
"$@" <&1 2>"$folder/messages" &
exec >/dev/null
read -r _
kill -KILL $! 2>/dev/null
wait
rm -rf "$folder"
