"""Names for AT-SPI's numbers: roles, states, interfaces and paths."""

from __future__ import annotations

ROLES = tuple(
    """invalid, accelerator label, alert, animation, arrow, calendar, canvas, check box, check menu item, color chooser,
    column header, combo box, date editor, desktop icon, desktop frame, dial, dialog, directory pane, drawing area,
    file chooser, filler, focus traversable, font chooser, frame, glass pane, html container, icon, image, internal frame,
    label, layered pane, list, list item, menu, menu bar, menu item, option pane, page tab, page tab list, panel,
    password text, popup menu, progress bar, push button, radio button, radio menu item, root pane, row header, scroll bar,
    scroll pane, separator, slider, spin button, split pane, status bar, table, table cell, table column header,
    table row header, tearoff menu item, terminal, text, toggle button, tool bar, tool tip, tree, tree table, unknown,
    viewport, window, extended, header, footer, paragraph, ruler, application, autocomplete, editbar, embedded, entry,
    chart, caption, document frame, heading, page, section, redundant object, form, link, input method window, table row,
    tree item, document spreadsheet, document presentation, document text, document web, document email, comment,
    list box, grouping, image map, notification, info bar, level bar, title bar, block quote, audio, video, definition,
    article, landmark, log, marquee, math, rating, timer, static, math fraction, math root, subscript, superscript,
    description list, description term, description value, footnote, content deletion, content insertion, mark,
    suggestion, push button menu""".replace("\n", " ").split(", ")
)
TAGS = tuple("-".join(role.split()) for role in ROLES)
"""Roles as names of XML elements."""

STATES = tuple(
    """invalid active armed busy checked collapsed defunct editable enabled expandable expanded focusable focused
    has_tooltip horizontal iconified modal multi_line multiselectable opaque pressed resizable selectable selected
    sensitive showing single_line stale transient vertical visible manages_descendants indeterminate required truncated
    animated invalid_entry supports_autocompletion selectable_text is_default visited checkable has_popup
    read_only""".split()  # noqa: SIM905
)
ACTIVE, ENABLED, FOCUSED, SENSITIVE, SHOWING, VISIBLE, MANAGES_DESCENDANTS = (
    1 << STATES.index(name)
    for name in ("active", "enabled", "focused", "sensitive", "showing", "visible", "manages_descendants")
)

ATSPI = "org.a11y.atspi."
ACCESSIBLE, ACTION, APPLICATION, COMPONENT, DOCUMENT, IMAGE, TABLE, TEXT, VALUE = (
    f"{ATSPI}{name}"
    for name in ("Accessible", "Action", "Application", "Component", "Document", "Image", "Table", "Text", "Value")
)
CACHE = f"{ATSPI}Cache"
PROPERTIES = "org.freedesktop.DBus.Properties"

REGISTRY = f"{ATSPI}Registry"
REGISTRY_PATH = "/org/a11y/atspi/registry"
ROOT_PATH = "/org/a11y/atspi/accessible/root"
CACHE_PATH = "/org/a11y/atspi/cache"
NULL_PATH = "/org/a11y/atspi/null"
DIALOGS = frozenset({ROLES.index("alert"), ROLES.index("dialog")})
MENU, MENU_BAR, TABLE_CELL, TERMINAL, WINDOW = (
    ROLES.index(name) for name in ("menu", "menu bar", "table cell", "terminal", "window")
)

CALLED = {"Chromium": "Google Chrome"}
"""Names that programs give themselves, and the names that OSWorld's evaluators look for."""
