"""What OSWorld's tasks name and this version of desktop-env lacks: one getter and one metric, in its own shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

GETTERS = frozenset({"chrome_appearance_mode_ui"})
METRICS = frozenset({"check_structure_sim_with_threshold"})


def add_to(getters: Any, metrics: Any) -> None:
    """Adds them to desktop-env's modules, where those do not have them by now."""
    functions: Mapping[str, Callable[..., Any]] = {"get_chrome_appearance_mode_ui": _chrome_appearance}
    for name, function in functions.items():
        if not hasattr(getters, name):
            setattr(getters, name, function)
    if not hasattr(metrics, "check_structure_sim_with_threshold"):
        metrics.check_structure_sim_with_threshold = _same_structure


def _chrome_appearance(env: Any, _config: Mapping[str, Any]) -> str:
    """Whether Chrome shows its own pages ``dark`` or ``light``, as they are drawn right now."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://{env.vm_ip}:{env.chromium_port}")
        pages = browser.contexts[0].pages
        page = next((page for page in pages if page.url.startswith("chrome://")), pages[0])
        return "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"


def _same_structure(result: str | None, expected: str | None, ssim_threshold: float = 0.9, **_options: Any) -> float:
    """1 when two pictures of one size are as similar as asked, by SSIM."""
    from desktop_env.evaluators.metrics.gimp import structure_check_by_ssim
    from PIL import Image

    if result is None or expected is None:
        return 0.0
    with Image.open(result) as ours, Image.open(expected) as theirs:
        return 1.0 if ours.size == theirs.size and structure_check_by_ssim(ours, theirs, ssim_threshold) else 0.0
