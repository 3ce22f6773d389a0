"""The licence of a package, read from its metadata: an SPDX expression where it can be told, else what the metadata says.

Nothing is guessed: "BSD" alone is not an expression, since there are several licences of that name, and of two statements that
differ none is taken. Only where the metadata says nothing at all is the first line of the licence file quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

_NAMES = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache license version 2.0 january 2004": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "2-clause bsd license": "BSD-2-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "eupl 1.1+": "EUPL-1.1+",
    "agplv3+": "AGPL-3.0-or-later",
    "gplv2+": "GPL-2.0-or-later",
    "gplv3+": "GPL-3.0-or-later",
    "lgplv2.1+": "LGPL-2.1-or-later",
    "lgplv3+": "LGPL-3.0-or-later",
    "isc license": "ISC",
    "mit license": "MIT",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "mozilla public license 2.0": "MPL-2.0",
    "mpl 2.0": "MPL-2.0",
}
"""What the field License holds in words that mean one licence: lower case, without commas."""

_CLASSIFIERS = {
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "CMU License (MIT-CMU)": "MIT-CMU",
    "European Union Public Licence 1.1 (EUPL 1.1)": "EUPL-1.1",
    "European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Classifiers that mean one licence. "BSD License" and "Apache Software License" do not say which, or which version."""

_STATUS_CLASSIFIERS = {"OSI Approved", "DFSG approved"}
_NO_STATEMENT = {"", "unknown", "license", "licence", "none"}
_LONGEST_NAME = 100
"""A longer License field is the text of a licence; its title is in its first lines."""

_COPYLEFT = {
    "AGPL": re.compile(r"\bAGPL|\bAffero (?:GPL|General Public Licen[cs]e)", re.IGNORECASE),
    "LGPL": re.compile(r"\bLGPL|\b(?:Lesser|Library|Library or Lesser) General Public Licen[cs]e", re.IGNORECASE),
    "GPL": re.compile(r"\bGPL|\bGeneral Public Licen[cs]e", re.IGNORECASE),
    "EUPL": re.compile(r"\bEUPL|\bEuropean Union Public Licen[cs]e", re.IGNORECASE),
    "MPL": re.compile(r"\bMPL|\bMozilla Public Licen[cs]e", re.IGNORECASE),
}
"""In this order: what one has matched, the next ones do not see."""

_PART = re.compile(
    r"^[ \t]*(?:(?P<title>GNU (?:AFFERO |LESSER |LIBRARY )?GENERAL PUBLIC LICENSE)[ \t]*|License: (?P<line>.*GPL.*))$",
    re.IGNORECASE | re.MULTILINE,
)
"""A whole text under its title, or a line that names the licence of something inside a wheel."""


@dataclass(frozen=True, slots=True)
class Licence:
    """What is known of a package's licence."""

    spdx: str = ""
    """An SPDX expression; empty where the metadata does not tell."""
    says: str = ""
    """What the metadata says instead; empty beside an expression."""

    def __str__(self) -> str:
        return self.spdx or f"unclear: {self.says}"

    @property
    def copyleft(self) -> tuple[str, ...]:
        """Which of AGPL, LGPL, GPL, EUPL and MPL it names, alone or beside others."""
        return copyleft(self.spdx or self.says)


def read_licence(
    *, expression: str, field: str, classifiers: Iterable[str], texts: Mapping[str, str] | None = None
) -> Licence:
    """Reads a package's licence.

    Args:
        expression: License-Expression of its metadata, or nothing.
        field: License of its metadata, or nothing.
        classifiers: Its trove classifiers; those that are of no licence are left aside.
        texts: Its licence files, name -> text; used where the metadata says nothing.
    """
    by_expression = _canonical(expression)
    if by_expression:
        return Licence(by_expression)
    named = [tail for tail in map(_licence_of, classifiers) if tail]
    by_classifiers = {_CLASSIFIERS.get(tail, "") for tail in named}
    stated = field.strip()
    spdx = _from_field(stated)
    if spdx and (not named or _compatible(spdx, named)):
        return Licence(spdx)
    if (
        not spdx
        and (stated.lower() in _NO_STATEMENT or _is_text(stated))
        and len(by_classifiers - {""}) == len(named) == 1
    ):
        return Licence(by_classifiers.pop())
    return Licence(says=_words(expression, stated, named, texts or {}))


def copyleft(text: str) -> tuple[str, ...]:
    """Returns which copyleft licences a short text names: keys of the table above, sorted."""
    found = []
    for family, pattern in _COPYLEFT.items():
        text, times = pattern.subn(" ", text)
        if times:
            found.append(family)
    return tuple(sorted(found))


def parts(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns which GNU licences the licence files of a wheel hold as a whole, or name as that of something inside; sorted."""
    found = {match["title"] or match["line"] for text in texts for match in _PART.finditer(text)}
    return tuple(sorted({family for said in found for family in copyleft(said)}))


def _canonical(expression: str) -> str:
    try:
        return str(canonicalize_license_expression(expression)) if expression else ""
    except InvalidLicenseExpression:
        return ""


def _licence_of(classifier: str) -> str:
    """Returns the last part of a classifier that names a licence, else nothing."""
    first, *others = classifier.split(" :: ")
    return others[-1] if first == "License" and others and others[-1] not in _STATUS_CLASSIFIERS else ""


def _is_text(stated: str) -> bool:
    return "\n" in stated or len(stated) > _LONGEST_NAME


def _from_field(stated: str) -> str:
    """Returns the SPDX expression that the License field means, or nothing."""
    if not _is_text(stated):
        return _canonical(stated) or _canonical(
            "".join(
                part if part in (" OR ", " AND ") else _NAMES.get(_plain(part), part)
                for part in re.split("( OR | AND )", stated)
            )
        )
    first, second = [*(line.strip() for line in stated.splitlines() if line.strip()), "", ""][:2]
    return _NAMES.get(_plain(first), "") or _NAMES.get(_plain(f"{first} {second}"), "")


def _plain(text: str) -> str:
    return " ".join(text.replace(",", " ").split()).lower()


def _compatible(spdx: str, named: Iterable[str]) -> bool:
    """Whether each classifier's licence is one of the expression's; one that does not say which must be of its kind."""
    ids = {_bare(part) for part in re.split(r" OR | AND |[()]", spdx) if part.strip()}
    for tail in named:
        exact = _CLASSIFIERS.get(tail)
        if exact is not None:
            if _bare(exact) not in ids:
                return False
        elif not any(_is_of_kind(one, tail) for one in ids):
            return False
    return True


def _bare(spdx_id: str) -> str:
    return spdx_id.strip().removesuffix("+").removesuffix("-only").removesuffix("-or-later")


def _is_of_kind(spdx_id: str, tail: str) -> bool:
    words = {"BSD": "BSD License", "Apache": "Apache Software License", "PSF": "Python Software Foundation License"}
    kind = spdx_id.partition("-")[0]
    return words.get(kind) == tail or kind in copyleft(tail)


def _words(expression: str, stated: str, named: list[str], texts: Mapping[str, str]) -> str:
    said = []
    if expression:
        said.append(f"License-Expression {expression}")
    if _is_text(stated):
        said.append("License is a text")
    elif stated.lower() not in _NO_STATEMENT:
        said.append(f"License {stated}")
    if named:
        said.append(f"{'classifier' if len(named) == 1 else 'classifiers'} {', '.join(named)}")
    for name, text in sorted(texts.items()) if not said else ():
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        said.append(f"the metadata says nothing; {name.rpartition('/')[2]} begins with {first[:_LONGEST_NAME]!r}")
    return "; ".join(said) or "the metadata says nothing"
