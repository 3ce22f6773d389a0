"""The table of OSWorld's agents is theirs to the byte: compared with the function that desktop-env brings."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import accessibility_table
from rollout_tasks.environments.osworld.observation import desktop_view
from tests.unit.environments.osworld.test_observation import TREE, seen

ROLES = (
    "push-button",
    "document-web",
    "menu",
    "check-menu-item",
    "panel",
    "label",
    "text",
    "table-cell",
    "canvas",
    "edit",
    "heading",
)
STATES = ("showing", "visible", "enabled", "editable", "expandable", "checkable")


@pytest.fixture(scope="module")
def theirs() -> Callable[..., str]:
    """Their function, without the imports of its module, which need other packages."""
    found = importlib.util.find_spec("mm_agents")
    if found is None or not found.submodule_search_locations:
        pytest.skip("desktop-env is not installed")
    folder = Path(found.submodule_search_locations[0])
    words: dict[str, Any] = {"ET": ElementTree, "Tuple": tuple, "List": list}
    for file in ("accessibility_tree_wrap/heuristic_retrieve.py", "agent.py"):
        tree = ast.parse((folder / file).read_text(encoding="utf-8"))
        wanted = [
            node
            for node in tree.body
            if (
                isinstance(node, ast.FunctionDef)
                and node.name in {"judge_node", "filter_nodes", "linearize_accessibility_tree"}
            )
            or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").count("_ns_"))
        ]
        exec(compile(ast.Module(wanted, []), file, "exec"), words)  # noqa: S102 (an installed package)
    function: Callable[..., str] = words["linearize_accessibility_tree"]
    return function


@st.composite
def trees(draw: st.DrawFn, system: str, depth: int = 2) -> ElementTree.Element:
    """An element of any kind, with others inside."""
    text = st.text(alphabet="ab \"'<&\n\té", max_size=6)
    attributes = {f"st:{state}": draw(st.sampled_from(["true", "true", "true", "false", None])) for state in STATES}
    attributes |= {
        "name": draw(st.none() | text),
        "cp:screencoord": draw(st.sampled_from(["(1, 2)", "(10, 20)", "(-1, 5)", "(5, -1)", None])),
        "cp:size": draw(st.sampled_from(["(3, 4)", "(0, 4)", "(3, 0)", None])),
        "attr:class": draw(st.none() | text),
        "attr:description": draw(st.none() | text),
        "wattr:class": draw(st.none() | text),
        "wattr:description": draw(st.none() | text),
        "class:class": draw(st.sampled_from(["EditWrapper", "MyEditWrapper", "Other", None])),
        "val:value": draw(st.none() | text),
    }
    element = ElementTree.Element(draw(st.sampled_from(ROLES)))
    spaces = {
        "st": f"{system}.example.org/ns/state",
        "cp": f"{system}.example.org/ns/component",
        "attr": "ubuntu.example.org/ns/attributes",
        "wattr": "windows.example.org/ns/attributes",
        "class": "windows.example.org/ns/class",
        "val": f"{system}.example.org/ns/value",
    }
    for name, value in attributes.items():
        space, _, local = name.rpartition(":")
        if value is not None:
            element.set(f"{{https://accessibility.{spaces[space]}}}{local}" if space else local, value)
    element.text = draw(st.none() | text)
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        element.append(draw(trees(system, depth - 1)))
    return element


@pytest.mark.parametrize("system", ["ubuntu", "windows"])
def test_any_tree_is_written_as_they_write_it(theirs: Callable[..., str], system: str) -> None:
    @settings(max_examples=100, deadline=None)
    @given(trees(system))
    def compare(tree: ElementTree.Element) -> None:
        xml = ElementTree.tostring(tree, encoding="unicode")
        assert accessibility_table.written(xml, system=system) == theirs(xml, system)

    compare()


def test_a_table_that_is_too_long_ends_as_theirs_does() -> None:
    row = '<label name="x" st:showing="true" st:visible="true" st:enabled="true" cp:screencoord="(1, 1)" cp:size="(1, 1)"/>'
    start = TREE[: TREE.index(">") + 1]

    text = accessibility_table.written(f"{start}{row * 5000}</desktop-frame>")

    assert len(text) == accessibility_table.MAX_CHARACTERS + len("[...]\n")
    assert text.endswith("[...]\n")


@pytest.mark.parametrize("kind", ["a11y_tree", "screenshot_a11y_tree"])
def test_an_agent_is_shown_it_when_asked_for(kind: str) -> None:
    config = DesktopConfig.model_validate({"observation_type": kind, "a11y": "osworld"})

    assert desktop_view(seen(), config).observation.text == accessibility_table.written(TREE)
