"""Makes the dock's launchers, with icons as paths: looking icons up by name takes the dock a third of its start.

Runs in the guest at build time: launchers.py FOLDER
"""

import configparser
import sys
from pathlib import Path

APPLICATIONS = Path("/usr/share/applications")
DOCKED = (
    "google-chrome",
    "thunderbird",
    "org.gnome.Nautilus",
    "thunar",
    "libreoffice-writer",
    "libreoffice-calc",
    "libreoffice-impress",
    "gimp",
    "vlc",
    "org.gnome.gedit",
    "org.gnome.Calculator",
    "org.gnome.Terminal",
)
INSTEAD_OF = {"thunar": "org.gnome.Nautilus"}
ICON_FOLDERS = [
    Path("/usr/share/icons", theme, size, kind)
    for theme in ("hicolor", "Adwaita")
    for size in ("48x48", "64x64", "256x256", "128x128", "scalable")
    for kind in ("apps", "places", "legacy")
]


def main(folder: str) -> None:
    """Writes one file for each program that is there."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    found = [name for name in DOCKED if (APPLICATIONS / f"{name}.desktop").exists()]
    for place, name in enumerate(name for name in found if INSTEAD_OF.get(name) not in found):
        read = configparser.ConfigParser(interpolation=None, strict=False)
        read.optionxform = str  # type: ignore[assignment, method-assign]
        read.read(APPLICATIONS / f"{name}.desktop", encoding="utf-8")
        entry = read["Desktop Entry"]
        icon = "system-file-manager" if name == "thunar" else entry["Icon"]
        lines = ("[Desktop Entry]", "Type=Application", f"Name={entry['Name']}", f"Exec={entry['Exec']}")
        content = "\n".join((*lines, f"Icon={icon_path(icon)}", ""))
        (target / f"{place:02d}-{name}.desktop").write_text(content, encoding="utf-8")


def icon_path(name: str) -> str:
    """Where an icon is; its name where it is not found."""
    for folder in ICON_FOLDERS:
        for suffix in (".png", ".svg"):
            if (path := folder / f"{name}{suffix}").exists():
                return str(path)
    return name


if __name__ == "__main__":
    main(sys.argv[1])
