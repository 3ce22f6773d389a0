"""What a task needs besides a desktop, for people to read: programs in the guest, files and web pages, accounts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmark.items import Item
from rollout_tasks.environments.osworld.desktop_env_import import OCR_METRIC
from rollout_tasks.environments.osworld.task import getters_of, metrics_of, steps_of
from rollout_tasks.environments.osworld.task_files import files_of

_PROGRAMS = {
    "calc": "libreoffice",
    "chrome": "chrome",
    "code": "vscode",
    "gimp": "gimp",
    "google-chrome": "chrome",
    "impress": "libreoffice",
    "libreoffice": "libreoffice",
    "libreoffice_calc": "libreoffice",
    "libreoffice_impress": "libreoffice",
    "libreoffice_writer": "libreoffice",
    "nautilus": "nautilus",
    "picard": "picard",
    "soffice": "libreoffice",
    "thunderbird": "thunderbird",
    "vlc": "vlc",
    "vs_code": "vscode",
    "vscode": "vscode",
    "writer": "libreoffice",
}
"""Names that tasks use for programs, and the programs they mean."""
_SUFFIXES = {
    **dict.fromkeys(("docx", "odp", "ods", "odt", "pptx", "xls", "xlsx"), "libreoffice"),
    "mp4": "vlc",
    "pdf": "a PDF viewer",
}
"""Programs, by the suffix of the file that a setup step opens."""
_VISITING = frozenset({"info_from_website", "page_info", "pdf_from_url", "gotoRecreationPage_and_get_html_content"})
_INSTALLING = re.compile(r"\b(pip3?|apt|apt-get|npm|snap|git) (-\S+ )*(install|clone)\b|\b(curl|wget) ")
_WEB_PAGE = re.compile(r"https?://(?!localhost|127\.0\.0\.1)[^\s\"'\\]+")
_WORDS = re.compile(r"[\w./-]+")


@dataclass(frozen=True, slots=True)
class Needs:
    """One task's needs."""

    programs: frozenset[str]
    """In the guest, besides those of any desktop."""
    downloads: tuple[str, ...]
    """URLs of files, fetched by the worker."""
    internet: bool
    """Whether the guest's browser or package manager uses it."""
    accounts: frozenset[str]
    packages: frozenset[str]
    """Python packages that are not installed with this project."""
    proxy: bool
    fixed_ip: bool


def needs_of(task: Mapping[str, Any], item: Item) -> Needs:
    """Returns what a validated task needs."""
    steps, getters, metrics = steps_of(task), getters_of(task["evaluator"]), metrics_of(task["evaluator"])
    google = any(step["type"] in {"googledrive", "login"} for step in steps) or any(
        getter["type"] == "googledrive_file" for getter in getters
    )
    packages = {"easyocr": OCR_METRIC in metrics, "pygame (in the guest)": "check_python_file_by_test_suite" in metrics}
    return Needs(
        programs=frozenset(_programs(steps, item)),
        downloads=tuple(dict.fromkeys(file.url for file in files_of(task))),
        internet=google or any(map(_goes_online, steps)) or any(getter["type"] in _VISITING for getter in getters),
        accounts=frozenset({"Google Drive"} if google else ()),
        packages=frozenset(name for name, needed in packages.items() if needed),
        proxy=bool(task["proxy"]),
        fixed_ip=bool(task["fixed_ip"]),
    )


def total(needs: Iterable[Needs]) -> dict[str, Any]:
    """Returns the needs of several tasks together, by kind; numbers are numbers of tasks."""
    programs: Counter[str] = Counter()
    accounts: Counter[str] = Counter()
    packages: Counter[str] = Counter()
    flags: Counter[str] = Counter()
    urls: set[str] = set()
    for need in needs:
        programs.update(need.programs)
        accounts.update(need.accounts)
        packages.update(need.packages)
        urls.update(need.downloads)
        flags.update(name for name in ("internet", "proxy", "fixed_ip") if getattr(need, name))
    return {
        "programs": dict(sorted(programs.items())),
        "downloads": len(urls),
        "accounts": dict(accounts),
        "packages": dict(packages),
        **{name: flags[name] for name in ("internet", "proxy", "fixed_ip")},
    }


def _programs(steps: Iterable[Mapping[str, Any]], item: Item) -> Iterator[str]:
    named = item.metadata.get("related_apps")
    for name in named if isinstance(named, list) else ():
        known = _PROGRAMS.get(str(name).lower().replace(" ", "_"))
        if known:
            yield known
    for step in steps:
        if step["type"] in {"launch", "execute", "command"}:
            for word in _WORDS.findall(_command(step)):
                program = _PROGRAMS.get(word.rsplit("/", 1)[-1])
                if program:
                    yield program
        elif step["type"] == "open":
            program = _SUFFIXES.get(str(step["parameters"].get("path", "")).rsplit(".", 1)[-1].lower())
            if program:
                yield program


def _goes_online(step: Mapping[str, Any]) -> bool:
    if step["type"] in {"chrome_open_tabs", "login"}:
        return bool(_WEB_PAGE.search(json.dumps(step)))
    if step["type"] not in {"launch", "execute", "command"}:
        return False
    command = _command(step)
    return bool(_INSTALLING.search(command)) or (step["type"] == "launch" and bool(_WEB_PAGE.search(command)))


def _command(step: Mapping[str, Any]) -> str:
    command = step["parameters"].get("command", "")
    return command if isinstance(command, str) else " ".join(map(str, command))
