"""The only place where `desktop_env` is imported, without its import's side effects on the process.

It is imported on first use, which takes seconds and 300 MiB. A worker does that once, before it forks.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import dotenv

from rollout_tasks.environments.osworld import desktop_env_patches

LOGGER = "desktopenv"
"""The parent of all the package's loggers."""
INSTALL_COMMAND = "uv pip install --require-hashes -r requirements-osworld.lock"


NOT_INSTALLED = f"desktops need the package desktop-env, which is not installed: {INSTALL_COMMAND}"
OCR_METRIC = "compare_image_text"
"""The only metric that needs easyocr, and with it torch."""
OCR_MISSING = f"the metric {OCR_METRIC} needs easyocr (several GB with torch), which is not installed"


class MissingOCR:
    """Stands in for `easyocr.Reader`."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError(OCR_MISSING)


def has_ocr() -> bool:
    """Returns whether easyocr is installed: without it, its metric would score every answer as wrong."""
    return importlib.util.find_spec("easyocr") is not None


def is_installed() -> bool:
    """Returns whether the package is installed; does not import it."""
    try:
        return importlib.util.find_spec("desktop_env") is not None
    except ModuleNotFoundError:
        return False


@lru_cache(maxsize=1)
def desktop_env() -> Any:
    """Returns the module `desktop_env.desktop_env`, with `getters` and `metrics` as its attributes.

    Raises:
        RuntimeError: It is not installed, or cannot be imported.
    """
    if not is_installed():
        raise RuntimeError(NOT_INSTALLED)
    # It logs every try of every call: useful in an attempt's own folder, not in a worker's log.
    logger = logging.getLogger(LOGGER)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    try:
        with _easyocr_or_stand_in(), _no_environment_file():
            module = importlib.import_module("desktop_env.desktop_env")
    except ImportError as error:
        raise RuntimeError(f"the package desktop-env is installed incompletely ({error}): {INSTALL_COMMAND}") from error
    _repair(module)
    return module


def _repair(module: Any) -> None:
    """Removes desktop-env's evaluation of guest text as Python, and its workaround for typing; adds the patches."""
    basic_os = importlib.import_module("desktop_env.evaluators.metrics.basic_os")
    basic_os.eval = ast.literal_eval  # type: ignore[attr-defined]
    # tldextract includes the known suffixes of domains; by default it asks the internet first, without a deadline.
    urls: Any = importlib.import_module("desktop_env.evaluators.metrics.utils")
    urls.tldextract = urls.tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
    urls.tldextract.extract = urls.tldextract
    module._fix_pyautogui_less_than_bug = str
    desktop_env_patches.add_to(module.getters, module.metrics)


@contextmanager
def _easyocr_or_stand_in() -> Iterator[None]:
    """Lets ``import easyocr`` succeed without the package; a later import still fails."""
    if has_ocr():
        yield
        return
    stand_in = ModuleType("easyocr")
    stand_in.Reader = MissingOCR  # type: ignore[attr-defined]
    sys.modules["easyocr"] = stand_in
    try:
        yield
    finally:
        del sys.modules["easyocr"]


@contextmanager
def _no_environment_file() -> Iterator[None]:
    """Keeps `.env` out of the process's environment, where child processes and crash reports would see secrets."""
    reader = dotenv.load_dotenv
    dotenv.load_dotenv = lambda *_arguments, **_options: False
    try:
        yield
    finally:
        dotenv.load_dotenv = reader
