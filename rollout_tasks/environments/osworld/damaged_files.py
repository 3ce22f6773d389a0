"""Which errors say that a file is damaged, or is not what its name says, rather than that the machine or the task has a fault."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
import zlib
from collections.abc import Mapping
from xml.etree import ElementTree

import requests
from lxml import etree

_UNREADABLE: tuple[type[Exception], ...] = (
    UnicodeDecodeError,
    etree.XMLSyntaxError,
    ElementTree.ParseError,
    json.JSONDecodeError,
    shutil.ReadError,
    zipfile.BadZipFile,
)
_UNREADABLE_BY: Mapping[str, tuple[type[Exception], ...]] = {
    "check_gnome_favorite_apps": (SyntaxError, ValueError, TypeError, RecursionError),
}
"""What more a metric raises on a printed result of the wrong form: an empty list of names is printed as ``@as []``."""
_FILE_LIBRARIES = frozenset(
    {
        "PIL",
        "PyPDF2",
        "cv2",
        "docx",
        "fitz",
        "mutagen",
        "openpyxl",
        "pdfminer",
        "pdfplumber",
        "pptx",
        "pymupdf",
        "pypdf",
        "yaml",
    }
)
"""Packages whose own errors are about the file that they read."""
_DAMAGED: tuple[type[Exception], ...] = (
    *_UNREADABLE,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What reading a damaged file may raise, besides errors of the guest's server, the machine, or the task."""
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""An archive lacks a file, or the program that should have unpacked it made none."""


def cannot_be_read(error: Exception, metric: str = "") -> bool:
    """Returns whether an error says by its kind that a file cannot be read as what it should be.

    Args:
        error: The error.
        metric: The metric that raised it.
    """
    if isinstance(error, requests.RequestException):
        return False
    if isinstance(error, (*_UNREADABLE, *_UNREADABLE_BY.get(metric, ()))):
        return True
    kind = type(error)
    return (
        kind is sqlite3.DatabaseError or kind.__module__.partition(".")[0] in _FILE_LIBRARIES or _is_of_a_library(error)
    )


def may_be_damage(error: Exception) -> bool:
    """Returns whether reading a damaged file may raise such an error; a fault of the program or the task may, too."""
    if isinstance(error, OSError):
        return isinstance(error, _ABSENT) or _is_of_a_library(error)
    return isinstance(error, _DAMAGED) and not isinstance(error, NotImplementedError)


def _is_of_a_library(error: Exception) -> bool:
    """Returns whether it is an `OSError` with which a library complains about a file, not one of this machine or a network."""
    return type(error) is OSError and error.errno is None
