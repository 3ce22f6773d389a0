"""The Debian packages of each guest image. Every profile includes all of `core`."""

from __future__ import annotations

SESSION = """
    at-spi2-core dbus dbus-user-session dbus-x11 dconf-gsettings-backend gsettings-desktop-schemas iproute2
    gnome-shell-common libglib2.0-bin libxfixes3 locales openbox procps python-is-python3 python3 python3-flask python3-gi
    python3-pil python3-pyatspi python3-pyperclip python3-requests python3-tk python3-waitress
    python3-xlib socat sudo websockify x11-utils x11-xserver-utils x11vnc xauth xdg-user-dirs xdg-utils
    xcape xfce4-appfinder xfce4-panel xfdesktop4 xvfb ffmpeg
"""

TOOLS = """
    bash-completion bc bsdextrautils bzip2 ca-certificates cpio curl desktop-file-utils ed file git gnome-screenshot
    iputils-ping jq less lsof nano net-tools netcat-openbsd openssh-client polkitd psmisc rsync scrot shared-mime-info
    systemd time tree tzdata unzip uuid-runtime vim-tiny wget wmctrl x11-apps xclip xdotool xsel xz-utils zip
"""

LOOKS = """
    adwaita-icon-theme fonts-dejavu-core fonts-droid-fallback fonts-liberation fonts-noto-color-emoji gnome-themes-extra
    hicolor-icon-theme librsvg2-common
"""

CORE = f"{SESSION} {TOOLS} {LOOKS} gedit gnome-calculator gnome-terminal thunar"

OFFICE = """
    fonts-crosextra-carlito fonts-crosextra-caladea libreoffice-calc libreoffice-gtk3 libreoffice-impress
    libreoffice-writer
"""

MEDIA = "gimp libatk-adaptor libgail-common mpv pulseaudio pulseaudio-utils vlc"

BROWSER = "chromium"

MORE = """
    eog evince file-roller gnome-control-center gvfs mutter-common nautilus pavucontrol python3-numpy python3-pip
    thunderbird
"""

GNOME = """
    gnome-session-bin gnome-settings-daemon gnome-shell gnome-shell-extension-dashtodock
    gnome-shell-extension-desktop-icons-ng libgl1-mesa-dri
"""
"""The desktop that the light desktop of `SESSION` imitates."""

PROFILES: dict[str, tuple[str, ...]] = {
    name: tuple(sorted(set(packages.split())))
    for name, packages in {
        "core": CORE,
        "office": f"{CORE} {OFFICE}",
        "media": f"{CORE} {MEDIA}",
        "browser": f"{CORE} {BROWSER}",
        "full": f"{CORE} {OFFICE} {MEDIA} {BROWSER} {MORE}",
        "gnome": f"{CORE} {OFFICE} {MEDIA} {BROWSER} {MORE} {GNOME}",
    }.items()
}
"""Each profile's packages, sorted."""
