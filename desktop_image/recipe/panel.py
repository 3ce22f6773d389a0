"""Makes the settings of the dock: launchers of the programs that are there, a finder of all, a button for each window.

Runs in the guest at build time: panel.py FILE
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

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
FINDER = "xfce4-appfinder"
SETTINGS_VERSION = 2
"""Of the panel; with another one it would ask which settings to take."""
HEIGHT = 48
BACKGROUND = (0.114, 0.114, 0.137, 1.0)


def main(file: str) -> None:
    """Writes the settings."""
    channel = ElementTree.Element("channel", name="xfce4-panel", version="1.0")
    _add(channel, "configver", "int", SETTINGS_VERSION)
    panels = _add(channel, "panels", "array")
    _value(panels, "int", 1)
    panel = _add(panels, "panel-1", "empty")
    _add(panel, "position", "string", "p=8;x=0;y=0")
    _add(panel, "position-locked", "bool", "true")
    _add(panel, "length", "uint", 100)
    _add(panel, "size", "uint", HEIGHT)
    _add(panel, "icon-size", "uint", 36)
    _add(panel, "background-style", "uint", 1)
    colour = _add(panel, "background-rgba", "array")
    for share in BACKGROUND:
        _value(colour, "double", share)
    plugins = _plugins()
    listed = _add(panel, "plugin-ids", "array")
    for number in range(1, len(plugins) + 1):
        _value(listed, "int", number)
    described = _add(channel, "plugins", "empty")
    for number, (kind, options) in enumerate(plugins, 1):
        plugin = _add(described, f"plugin-{number}", "string", kind)
        for name, what, value in options:
            if what == "array":
                _value(_add(plugin, name, "array"), "string", value)
            else:
                _add(plugin, name, what, value)
    target = Path(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.indent(channel)
    ElementTree.ElementTree(channel).write(target, encoding="UTF-8", xml_declaration=True)


def _plugins() -> list[tuple[str, list[tuple[str, str, str]]]]:
    found = [name for name in DOCKED if (APPLICATIONS / f"{name}.desktop").exists()]
    shown = [name for name in found if INSTEAD_OF.get(name) not in found]
    return [
        *(("launcher", [("items", "array", f"{name}.desktop")]) for name in (*shown, FINDER)),
        ("separator", [("style", "uint", "0")]),
        ("tasklist", [("flat-buttons", "bool", "true"), ("show-handle", "bool", "false"), ("grouping", "uint", "0")]),
    ]


def _add(parent: ElementTree.Element, name: str, kind: str, value: object = None) -> ElementTree.Element:
    made = ElementTree.SubElement(parent, "property", name=name, type=kind)
    if value is not None:
        made.set("value", str(value))
    return made


def _value(parent: ElementTree.Element, kind: str, value: object) -> None:
    ElementTree.SubElement(parent, "value", type=kind, value=str(value))


if __name__ == "__main__":
    main(sys.argv[1])
