#!/bin/sh
# What is set up once, at build time, in the guest's root ($1), after its packages are installed.
set -eu
root=$1
recipe=$(dirname "$0")
in_guest() { chroot "$root" "$@"; }

# noVNC is a page; what its package depends on, Node.js above all, is for those who develop it.
(cd "$root/var/cache" && in_guest sh -c 'cd /var/cache && apt-get download -q novnc' && mv novnc_*.deb novnc.deb)
in_guest dpkg-deb --extract /var/cache/novnc.deb /var/cache/novnc
mv "$root/var/cache/novnc/usr/share/novnc" "$root/usr/share/novnc"
rm -r "$root/var/cache/novnc" "$root/var/cache/novnc.deb"

# Nothing of the machine that builds.
echo guest >"$root/etc/hostname"
printf '127.0.0.1 localhost guest\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
rm -f "$root/etc/resolv.conf"
: >"$root/etc/resolv.conf"
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
ln -sf /usr/share/zoneinfo/Etc/UTC "$root/etc/localtime"
in_guest dbus-uuidgen >"$root/etc/machine-id"
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED

in_guest localedef -i en_US -f UTF-8 en_US.UTF-8
printf 'LANG=en_US.UTF-8\n' >"$root/etc/default/locale"

in_guest useradd --create-home --shell /bin/bash --uid 1000 --groups sudo,audio,video user
echo user:password | in_guest chpasswd
for folder in Desktop Documents Downloads Music Pictures Public Templates Videos; do
    in_guest install -d -o user -g user "/home/user/$folder"
done
in_guest install -d -o user -g user -m 700 /home/user/.config /home/user/.cache /home/user/.local /home/user/.local/share
in_guest setpriv --reuid user --regid user --init-groups env -i HOME=/home/user PATH=/usr/bin:/bin LANG=C.UTF-8 xdg-user-dirs-update

# Debian's pyperclip takes GTK's clipboard where it can: its process answers nobody, so that nothing could be pasted. Without
# GTK it takes xsel, whose process stays. Agents type by it.
sed -i 's/^\( *\)import gi  # check .*/\1raise ImportError/' "$root"/usr/lib/python3/dist-packages/pyperclip/__init__.py

# Settings and looks.
cp "$recipe/guest.gschema.override" "$root/usr/share/glib-2.0/schemas/90_guest.gschema.override"
in_guest glib-compile-schemas /usr/share/glib-2.0/schemas
install -d "$root/usr/share/backgrounds"
in_guest python3 - /usr/share/backgrounds/guest.png <"$recipe/wallpaper.py"
in_guest fc-cache --system-only

"$recipe/applications.sh" "$root"

in_guest ldconfig
rm -rf "$root"/var/cache/apt/* "$root"/var/log/apt "$root"/var/log/dpkg.log "$root"/var/log/bootstrap.log
