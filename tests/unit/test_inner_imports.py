"""An import inside a function says why it is not at the module's top: on its line, on that of the import above it, or above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.conftest import REPOSITORY

PACKAGES = ("benchmark", "vm_pool", "desktop_image", "rollout_tasks", "scripts", "tools")
FOR_TOOLS = re.compile(r"(noqa|type: ignore|pragma)\S*( [A-Z]+[0-9]+,?)*")
"""What comments tell linters and type checkers, which is no reason."""

Import = ast.Import | ast.ImportFrom


def inner_imports(node: ast.AST, function: str | None = None) -> Iterator[tuple[str, Import]]:
    """The imports inside functions, each with its function's name; not those that only a type checker sees."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    elif isinstance(node, Import) and function is not None:
        yield function, node
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    for child in ast.iter_child_nodes(node):
        yield from inner_imports(child, function)


def has_comment(lines: Sequence[str]) -> bool:
    """Whether any of the lines has a comment for people."""
    return any(FOR_TOOLS.sub("", line.partition("#")[2]).strip() for line in lines)


def silent_imports(source: str) -> Iterator[str]:
    """``LINE: FUNCTION: the import has no reason`` of each import that says nothing."""
    lines = source.splitlines()
    explained: set[int] = set()
    """The last lines of the imports that say why."""
    for function, node in inner_imports(ast.parse(source)):
        above, end = lines[node.lineno - 2], node.end_lineno or node.lineno
        if (
            has_comment(lines[node.lineno - 1 : end])
            or (above.lstrip().startswith("#") and has_comment([above]))
            or node.lineno - 1 in explained
        ):
            explained.add(end)
        else:
            yield f"{node.lineno}: {function}: the import has no reason"


def test_imports_inside_functions_say_why_they_are_there() -> None:
    silent = [
        f"{path.relative_to(REPOSITORY)}:{problem}"
        for package in PACKAGES
        for path in sorted((REPOSITORY / package).rglob("*.py"))
        for problem in silent_imports(path.read_text("utf-8"))
    ]

    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    "body",
    [
        "import json  # here, because few need it",
        "import json  # noqa: F401 (here, because few need it)",
        "# Here, because few need it.\n    import json",
        "import csv  # here, because few need them\n    import json\n    from re import sub",
        "from re import (  # here, because few need them\n        match,\n        sub,\n    )\n    import json",
        "if TYPE_CHECKING:\n        import json",
    ],
)
def test_a_comment_is_a_reason_for_the_imports_that_follow_at_once(body: str) -> None:
    assert not list(silent_imports(f"def load():\n    {body}\n"))


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("def load():\n    import json\n", ["2: load"]),
        ("async def load():\n    from re import sub\n", ["2: load"]),
        ("class Reader:\n    def load(self):\n        def inner():\n            import json\n", ["4: inner"]),
        ("def load():\n    import json  # noqa: F401, E402\n", ["2: load"]),
        ("def load():\n    import json  # type: ignore[import-untyped]\n", ["2: load"]),
        ("def load():\n    import csv  # few need it\n\n    import json\n", ["4: load"]),
        ("def load():\n    import csv\n    import json\n", ["2: load", "3: load"]),
        ("def load():\n    name = 'a'  # of a file\n    import json\n", ["3: load"]),
        ("import json\n\nif json:\n    import csv\n", []),
    ],
)
def test_an_import_without_a_reason_is_found(source: str, where: list[str]) -> None:
    assert list(silent_imports(source)) == [f"{place}: the import has no reason" for place in where]
