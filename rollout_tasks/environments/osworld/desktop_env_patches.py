"""Patches for desktop-env: what OSWorld's tasks name and this version lacks, or reads wrongly.

Two getters, two metrics, two options of metrics that it would ignore, one corrected getter, and a metric that tells when it
cannot work.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GETTERS = frozenset({"chrome_appearance_mode_ui", "chrome_color_scheme"})
METRICS = frozenset({"check_play_and_exit", "check_structure_sim_with_threshold"})
OPTIONS = frozenset({("compare_pptx_files", "examine_run_count"), ("compare_config", "containment_ok")})
"""Metrics and their options."""

_CHROME_PREFERENCES = "/home/user/.config/google-chrome/Default/Preferences"
_COLOR_SCHEMES = {0: "system", 1: "light", 2: "dark"}
_ASKS_FOR_FORMAT = "file"
_MIGRATION_MARK = "has_migrated_"
"""Prefix of notes that Chromium itself writes among the user's settings of sites."""


def add_to(getters: Any, metrics: Any) -> None:
    """Adds the patches to desktop-env's modules, unless a newer version has them."""
    new_getters: Mapping[str, Callable[..., Any]] = {
        "get_chrome_appearance_mode_ui": _chrome_appearance,
        "get_chrome_color_scheme": _chrome_color_scheme,
    }
    new_metrics: Mapping[str, Callable[..., Any]] = {
        "check_play_and_exit": _plays_and_exits,
        "check_structure_sim_with_threshold": _same_structure,
    }
    for module, functions in ((getters, new_getters), (metrics, new_metrics)):
        for name, function in functions.items():
            if not hasattr(module, name):
                setattr(module, name, function)
    for metric, option in OPTIONS:
        compare = getattr(metrics, metric)
        if option not in inspect.getsource(compare):
            setattr(metrics, metric, _WITH_OPTION[option](compare))
    getters.get_data_delete_automacally = _data_deleted_on_exit
    metrics.compare_image_text = _with_reader(metrics.compare_image_text)


def _chrome_appearance(env: Any, _config: Mapping[str, Any]) -> str | None:
    """Returns whether Chrome draws its own pages ``dark`` or ``light`` at present; None if it has no page.

    Raises:
        requests.ConnectionError: Chrome was closed.
    """
    from playwright.sync_api import sync_playwright  # here, because light workers import this module and lack it

    from rollout_tasks.environments.osworld.vm_client import REQUESTS  # here, because light workers lack requests

    address = f"http://{env.vm_ip}:{env.chromium_port}"
    REQUESTS.get(f"{address}/json/version")  # playwright would not say whether Chrome is closed or something else fails
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(address)
        pages = browser.contexts[0].pages
        if not pages:
            return None
        page = next((page for page in pages if page.url.startswith("chrome://")), pages[0])
        return "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"


def _chrome_color_scheme(env: Any, _config: Mapping[str, Any]) -> str:
    """Returns what the user chose for Chrome's own colours: ``system``, ``light`` or ``dark``."""
    theme = _chrome_settings(env, "browser", "theme")
    chosen = theme.get("color_scheme2", theme.get("color_scheme"))
    return _COLOR_SCHEMES.get(chosen, "system") if isinstance(chosen, int) else "system"


def _data_deleted_on_exit(env: Any, _config: Mapping[str, Any]) -> str:
    """Returns ``true`` if the user has set what sites may do or keep; desktop-env takes that for deleting on exit.

    Its own getter accepts any entry there, but current Chromium writes one in every fresh profile.
    """
    chosen = _chrome_settings(env, "profile", "default_content_setting_values")
    return "true" if any(not name.startswith(_MIGRATION_MARK) for name in chosen) else "false"


def _chrome_settings(env: Any, *place: str) -> dict[str, Any]:
    """Returns a section of Chrome's settings; empty if Chrome never ran, or its file is invalid."""
    try:
        found = json.loads(env.controller.get_file(_CHROME_PREFERENCES) or "{}")
    except (ValueError, RecursionError):
        return {}
    for name in place:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _plays_and_exits(result: str | None, rule: Mapping[str, Any], **_options: Any) -> float:
    """Returns 1 if VLC's ``play-and-exit`` (default: 0) is the rule's ``expected_play_and_exit``, else 0."""
    if result is None:
        return 0.0
    found = "0"
    for line in Path(result).read_text(encoding="utf-8", errors="replace").splitlines():
        name, _equals, value = line.partition("=")
        if name.strip() == "play-and-exit":
            found = value.strip()
    return 1.0 if found == str(rule["expected_play_and_exit"]) else 0.0


def _same_structure(result: str | None, expected: str | None, ssim_threshold: float = 0.9, **_options: Any) -> float:
    """Returns 1 if two pictures have the same size and their SSIM reaches the threshold."""
    from desktop_env.evaluators.metrics.gimp import structure_check_by_ssim  # here, because light workers lack it
    from PIL import Image

    if result is None or expected is None:
        return 0.0
    with Image.open(result) as ours, Image.open(expected) as theirs:
        return 1.0 if ours.size == theirs.size and structure_check_by_ssim(ours, theirs, ssim_threshold) else 0.0


def _with_run_count(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Compares slides; with ``examine_run_count: false``, paragraphs may be cut into different numbers of runs.

    Then only the first runs of two paragraphs are compared, as many as the shorter one has, as OSWorld itself does.
    """

    def compare_pptx_files(result: Any, expected: Any, *, examine_run_count: bool = True, **options: Any) -> Any:
        if examine_run_count:
            return compare(result, expected, **options)
        with _uncounted_runs():
            return compare(result, expected, **options)

    return compare_pptx_files


class _Uncounted(tuple[Any, ...]):
    """A paragraph's runs, whose number always counts as the same."""

    def __len__(self) -> int:
        return 0


@contextmanager
def _uncounted_runs() -> Iterator[None]:
    """Makes python-pptx return such runs. A process evaluates one task at a time."""
    from pptx.text import text  # here, because light workers lack it

    paragraphs: Any = text._Paragraph
    runs = paragraphs.runs
    paragraphs.runs = property(lambda paragraph: _Uncounted(runs.fget(paragraph)))
    try:
        yield
    finally:
        paragraphs.runs = runs


def _with_containment(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Compares settings; with ``containment_ok: true``, they need only contain the expected ones, as JSON or as text."""

    def compare_config(
        result: str | None, rules: Mapping[str, Any], *, containment_ok: bool = False, **options: Any
    ) -> Any:
        if not containment_ok or not result:
            return compare(result, rules, **options)
        written, expected = Path(result).read_text(encoding="utf-8"), str(rules["expected"])
        try:
            return 1.0 if _contains(json.loads(written), json.loads(expected)) else 0.0
        except (ValueError, RecursionError):
            return 1.0 if expected.strip() in written else 0.0

    return compare_config


def _contains(there: Any, expected: Any) -> bool:
    """Returns whether a value contains the expected one: objects by their members, other values as a whole."""
    if isinstance(there, dict) and isinstance(expected, dict):
        return all(name in there and _contains(there[name], value) for name, value in expected.items())
    return bool(there == expected)


def _with_reader(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Looks for a text in a picture; raises if what reads it does not start, after which desktop-env calls any picture wrong."""

    def compare_image_text(result: Any, rule: Any, **options: Any) -> Any:
        if result and shutil.which(_ASKS_FOR_FORMAT) is None:
            raise RuntimeError(f"the program {_ASKS_FOR_FORMAT}, which the metric runs, is not installed")
        with _failed_readers(compare.__globals__["easyocr"]) as failures:
            value = compare(result, rule, **options)
        if failures:
            raise RuntimeError(f"easyocr does not start: {failures[0]}") from failures[0]
        return value

    return compare_image_text


@contextmanager
def _failed_readers(easyocr: Any) -> Iterator[list[Exception]]:
    """Notes why readers could not be made. A process evaluates one task at a time."""
    make, failures = easyocr.Reader, []

    def noted(*arguments: Any, **options: Any) -> Any:
        try:
            return make(*arguments, **options)
        except Exception as error:
            failures.append(error)
            raise

    easyocr.Reader = noted
    try:
        yield failures
    finally:
        easyocr.Reader = make


_WITH_OPTION: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "examine_run_count": _with_run_count,
    "containment_ok": _with_containment,
}
