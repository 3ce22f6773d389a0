"""Finds what a task touches in its guest, from the setup, evaluator steps and getters of an OSWorld task file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from desktop_image.conformance.command_uses import Use, host_of, split, uses_of_shell, uses_of_words

Kind = Literal[
    "account",
    "application",
    "bus name",
    "file",
    "file type",
    "internet",
    "module",
    "older program",
    "package",
    "pasted picture",
    "placed object",
    "port",
    "program",
    "proxy",
    "rendering",
    "setting",
    "window class",
    "window title",
]
KINDS: tuple[str, ...] = Kind.__args__  # type: ignore[attr-defined]

CHROME_PORT = "1337"
_PLACEHOLDERS = re.compile(r"\{(CLIENT_PASSWORD|SCREEN_WIDTH(_HALF)?|SCREEN_HEIGHT(_HALF)?)\}")
_COMMAND_STEPS = frozenset({"command", "execute", "launch"})
_ACCOUNT_STEPS = frozenset({"googledrive", "login"})
_GETTERS: Mapping[str, tuple[Use, ...]] = {
    "accessibility_tree": (),
    "chrome_appearance_mode_ui": (("port", CHROME_PORT),),
    "default_video_player": (("program", "xdg-mime"),),
    "gimp_config_file": (("program", "gimp"),),
    "googledrive_file": (("account", "Google"),),
    "vlc_config": (("program", "vlc"),),
    "vlc_playing_info": (("program", "vlc"),),
    "vm_terminal_output": (("program", "gnome-terminal"),),
    "vm_wallpaper": (("setting", "org.gnome.desktop.background picture-uri"),),
    "vscode_config": (("program", "code"),),
}
"""What a getter touches with any parameters."""
_BROWSER_GETTERS = re.compile(
    r"active_.*|bookmarks|chrome_.*|cookie_data|data_delete_automacally|default_search_engine|enable_.*|enabled_experiments"
    r"|find_.*|gotoRecreationPage_.*|history|macys_.*|new_startup_page|number_of_search_results|open_tabs_info|page_info"
    r"|pdf_from_url|profile_name|shortcuts_on_desktop|url_.*"
)
_LIVE_GETTERS = re.compile(
    r"active_.*|gotoRecreationPage_.*|macys_.*|number_of_search_results|open_tabs_info|page_info|url_.*"
)
"""Getters that ask the running browser."""
_VISITING = frozenset({"gotoRecreationPage_and_get_html_content", "info_from_website", "page_info", "pdf_from_url"})
_PAGES = re.compile(r"https?://[^\s\"'<>)]+")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”")
_FETCHING = re.compile(
    r"\b(?:(?P<verb>install|download(?! folder)|clone|search the (?:internet|web))"
    r"|(?:home|personal web) ?pages?|arxiv(?:\.org| daily)?|github(?:\.com)?)\b",
    re.IGNORECASE,
)
"""Words in an instruction that mean the internet; "installed" and "downloaded" mean something that already exists."""
_OFFICE = frozenset({"libreoffice_calc", "libreoffice_impress", "libreoffice_writer"})
"""A picture that comes only from these programs was rendered by them."""
_FEASIBLE_SINCE = (
    (re.compile(r"\bsparklines?\b", re.IGNORECASE), "libreoffice 7.4"),
    (re.compile(r"\bC(MY|YM)K\b"), "gimp 3.0"),
)
"""What infeasible tasks ask for, and the program version that can do it: from that version on, giving up is wrong."""
_INSERTING = re.compile(
    r"\b(?:insert|add|draw|create|put)\s+an?\s+(?:(?!(?:above|around|at|below|beside|for|from|in|into|of|on|over|to|under|with)\b)\w+\s+){0,2}"
    r"(?:table|chart|image|picture|photo|shape|text ?box)\b",
    re.IGNORECASE,
)
"""What LibreOffice puts into the middle of what its window shows of a slide."""
_APPLICATION_NAME = re.compile(r"application\[\s*@?name\s*=\s*[\"']?([^\"'\]]+)")
_PROGRAMS_OF_APPLICATIONS = {
    "chrome": "google-chrome",
    "gimp": "gimp",
    "libreoffice_calc": "libreoffice",
    "libreoffice_impress": "libreoffice",
    "libreoffice_writer": "libreoffice",
    "thunderbird": "thunderbird",
    "vlc": "vlc",
    "vs_code": "code",
    "vscode": "code",
}
"""Names of programs in `related_apps`, and the commands that start them."""
_OWN_FOLDERS = ("/home/user/", "/tmp/", "~/")  # noqa: S108


@dataclass(frozen=True, slots=True)
class Touch:
    """One thing that a task relies on."""

    kind: str
    """One of `KINDS`."""
    name: str
    place: str
    """Where in the task: ``config, step 2``, ``evaluator.result``."""


def touches_of(task: Mapping[str, Any]) -> list[Touch]:
    """Returns everything that a task is found to touch, each thing once, at its first place.

    Args:
        task: A task file's content; malformed parts are ignored, since other modules report them.
    """
    first: dict[Use, Touch] = {}
    for kind, name, place in _all(task):
        first.setdefault((kind, name), Touch(kind, name, place))
    return list(first.values())


def _all(task: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    evaluator = task.get("evaluator")
    evaluator = evaluator if isinstance(evaluator, Mapping) else {}
    instruction = str(task.get("instruction", ""))
    for application in _listed(task.get("related_apps")):
        if program := _PROGRAMS_OF_APPLICATIONS.get(str(application)):
            yield "program", program, "related_apps"
    if task.get("proxy"):
        yield "proxy", "a proxy", "proxy"
    for place, steps in (("config", task.get("config")), ("evaluator.postconfig", evaluator.get("postconfig"))):
        for number, step in enumerate(_listed(steps), 1):
            if isinstance(step, Mapping) and isinstance(step.get("parameters"), Mapping):
                for kind, name in _of_step(str(step.get("type")), step["parameters"]):
                    yield kind, name, f"{place}, step {number}"
    for side in ("result", "expected"):
        for getter in _listed(evaluator.get(side)):
            if isinstance(getter, Mapping):
                for kind, name in _of_getter(getter):
                    # A file that the instruction names may be one that the agent is asked to make.
                    if kind != "file" or side == "expected" or name not in instruction:
                        yield kind, name, f"evaluator.{side}"
    for getter in _getters(evaluator.get("expected")):
        if getter.get("type") == "rule":
            for text in _texts(getter.get("rules")):
                if host := host_of(text):
                    yield "internet", host, "evaluator.expected"
    functions, applications = set(_listed(evaluator.get("func"))), set(_listed(task.get("related_apps")))
    if "compare_images" in functions and applications and applications <= _OFFICE:
        yield "rendering", "libreoffice 7.3", "evaluator.func"
    if "compare_docx_images" in functions and "gimp" in applications:
        yield "pasted picture", "libreoffice 7.3", "evaluator.func"
    if _compares_places(evaluator) and _INSERTING.search(instruction):
        yield "placed object", "gnome-shell", "evaluator.func"
    if "infeasible" not in _listed(evaluator.get("func")):
        yield from ((*use, "instruction") for use in _of_instruction(instruction))
    else:
        for speaks_of, program in _FEASIBLE_SINCE:
            if speaks_of.search(instruction):
                yield "older program", program, "instruction"


def _compares_places(evaluator: Mapping[str, Any]) -> bool:
    """Returns whether a metric compares where things are on slides."""
    functions, options = _listed(evaluator.get("func")), _listed(evaluator.get("options"))
    for place, function in enumerate(functions):
        metric_options = options[place] if place < len(options) and isinstance(options[place], Mapping) else {}
        if function == "compare_pptx_files" and metric_options.get("examine_shape", True):
            return True
    return False


def _of_step(kind: str, parameters: Mapping[str, Any]) -> Iterator[Use]:
    if kind in _COMMAND_STEPS:
        yield from _of_command(parameters.get("command"), bool(parameters.get("shell")))
    elif kind in _ACCOUNT_STEPS:
        yield "account", "Google"
    elif kind == "open" and (suffix := PurePosixPath(str(parameters.get("path", ""))).suffix):
        yield "file type", suffix.lower()
    elif kind in {"chrome_open_tabs", "chrome_close_tabs"}:
        yield "port", CHROME_PORT
        for url in _listed(parameters.get("urls_to_open")):
            if host := host_of(str(url)):
                yield "internet", host
    elif kind in {"activate_window", "close_window"} and (name := parameters.get("window_name")):
        yield "window class" if parameters.get("by_class") else "window title", str(name)


def _of_getter(getter: Mapping[str, Any]) -> Iterator[Use]:
    kind = str(getter.get("type"))
    yield from _GETTERS.get(kind, ())
    if kind in {"vm_command_line", "vm_command_error"}:
        yield from _of_command(getter.get("command"), bool(getter.get("shell")))
    elif kind in {"vm_file", "content_from_vm_file", "list_directory"}:
        for path in map(str, _listed(getter.get("path"))):
            if path.startswith("/") and not path.startswith(_OWN_FOLDERS):
                yield "file", path
    elif kind == "vm_window_size":
        yield "window class", str(getter.get("app_class_name"))
    elif kind == "rule":
        yield from (("application", name) for name in _APPLICATION_NAME.findall(str(getter.get("rules"))))
    if _BROWSER_GETTERS.fullmatch(kind):
        yield "program", "google-chrome"
    if _LIVE_GETTERS.fullmatch(kind):
        yield "port", CHROME_PORT
    if kind in _VISITING:
        url = str(getter.get("url") or getter.get("path") or "")
        yield "internet", host_of(url) or "web pages"


def _of_command(command: Any, shell: bool) -> Iterator[Use]:
    if isinstance(command, str):
        text = _PLACEHOLDERS.sub("1", command)
        yield from uses_of_shell(text) if shell else uses_of_words(split(text))
    elif isinstance(command, list):
        yield from uses_of_words([_PLACEHOLDERS.sub("1", str(word)) for word in command])


def _of_instruction(text: str) -> Iterator[Use]:
    """Yields what an instruction needs from the internet: a page, or something that must be fetched."""
    for found in _PAGES.findall(text):
        if host := host_of(found):
            yield "internet", host
    if fetching := _FETCHING.search(_QUOTED.sub("", text)):
        yield "internet", f"to {fetching[0].lower()}" if fetching["verb"] else fetching[0]


def _getters(side: Any) -> list[Mapping[str, Any]]:
    return [getter for getter in _listed(side) if isinstance(getter, Mapping)]


def _texts(value: Any) -> Iterator[str]:
    """Yields every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
