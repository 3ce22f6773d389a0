"""The page docs/licences.md: rendered from the lock files, the facts of `licences.json` and the imports of our own code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tools.supply_chain.facts import STRONG, UNREAD, Fact, Facts, read_facts
from tools.supply_chain.locks import LOCKS, Row, rows
from tools.supply_chain.own_imports import importers

PAGE = Path("docs") / "licences.md"
TEMPLATE = Path(__file__).with_name("licences_template.md")

Known = Sequence[tuple[Row, Fact]]


def render(folder: Path, facts: Facts | None = None) -> str:
    """Returns the page as it should be.

    Args:
        folder: The repository.
        facts: What is known of the licences; default: the kept ones. A version that is not among them is marked as not read yet.
    """
    facts = read_facts() if facts is None else facts
    known = [(row, facts.get((row.name, row.version), UNREAD)) for row in rows(folder)]
    strong = [(row, fact) for row, fact in known if STRONG & set(fact.licence.copyleft)]
    others = [(row, fact) for row, fact in known if fact.licence.copyleft and not STRONG & set(fact.licence.copyleft)]
    our_imports = importers(folder, {module for _, fact in strong for module in fact.modules})
    return TEMPLATE.read_text("utf-8").format(
        counts=_counts(known),
        where=_where(strong),
        our_imports=_imports_sentence(our_imports),
        strong=_table(strong, "imported as", lambda _row, fact: ", ".join(f"`{name}`" for name in fact.modules)),
        others=_table(others, "brought by", lambda row, _fact: _brought_by(row)),
        inside=_table(
            [(row, fact) for row, fact in known if fact.carries],
            "in its licence files",
            lambda _row, fact: ", ".join(fact.carries),
        ),
        all=_table(known, "brought by", lambda row, _fact: _brought_by(row)),
    )


def _counts(known: Known) -> str:
    unclear = sum(not fact.spdx for _, fact in known)
    each = ", ".join(f"{sum(lock in row.locks for row, _ in known)} in `{file}`" for lock, file in LOCKS.items())
    return f"Locked are {len(known)} versions: {each}. The licence of {unclear} is unclear."


def _where(strong: Known) -> str:
    locks = {lock for row, _ in strong for lock in row.locks}
    bringers = sorted({name for row, _ in strong for name in (row.name if row.direct else "", *row.brought_by) if name})
    bearers = [file for lock, file in LOCKS.items() if lock in locks]
    spared = [file for lock, file in LOCKS.items() if lock not in locks]
    return (
        "These packages name such a licence, alone, as one to choose from, or beside others. They come with "
        f"{_listed(bringers)}, in {_listed(bearers)}; {_listed(spared)} has none of them."
    )


def _imports_sentence(our_imports: Mapping[str, Sequence[str]]) -> str:
    files = {file for names in our_imports.values() for file in names}
    tests = sorted(file for file in files if file.startswith("tests/"))
    said = f"Of our own code, {_listed(sorted(files - set(tests)))} imports any of them: desktop-env's evaluators do."
    return f"{said} Of the tests, {_listed(tests)} import some." if tests else said


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names) or "nothing"


def _brought_by(row: Row) -> str:
    return ", ".join([*(["*itself*"] if row.direct else []), *row.brought_by])


def _table(known: Known, last_head: str, last_cell: Callable[[Row, Fact], str]) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    head = ("package", "version", "licence", "lock", last_head)
    lines = [line(head), line(["---"] * len(head))]
    for row, fact in known:
        locks = "all" if len(row.locks) == len(LOCKS) else ", ".join(row.locks)
        lines.append(line((row.name, row.version, str(fact.licence), locks, last_cell(row, fact))))
    return "\n".join(lines)
