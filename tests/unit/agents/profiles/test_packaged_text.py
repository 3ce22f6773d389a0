"""Texts are read from the source of packages: by name, without running anything of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.agents.profiles import packaged_text
from rollout_tasks.agents.profiles.packaged_text import TextUnreadable, filled, read_text
from rollout_tasks.agents.profiles.profile import PackagedText

SOURCE = '''
import a_module_that_is_not_installed
raise SystemExit("this module must not be run")
FIRST = "old"
FIRST = """ new {place} """.strip()
TYPED: str = "typed"
SEVERAL = ["one", "two " + FIRST]
NUMBER = 7
LOOP = LOOP + "x"
DEEP = NESTED
RUN = open("/etc/passwd").read()
FORMATTED = f"{FIRST:>20}"
TODAY = f"Today is {now().strftime('%d')}."
class Agent:
    def predict(self, asked):
        lines = ["The screen has", f"{width}x{height}." if self.kind == "absolute" else "a grid."]
        told = "\\n".join(lines)
        tools = {"name": "tool", "told": told, "most": 3, "on": True}
        system = "Tools: " + json.dumps(tools)
        asked_for = f"Do {asked} after {before}, {self.kind}"
        return system
'''.replace("NESTED", '"x"' + ' + "y"' * 90)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    inside = tmp_path / "heavy_texts" / "inner"
    inside.mkdir(parents=True)
    (tmp_path / "heavy_texts" / "__init__.py").write_text(
        "raise SystemExit('the package must not be run')\nTOP = 'top'\n"
    )
    (inside / "__init__.py").write_text("raise SystemExit('nor this one')\n")
    (inside / "texts.py").write_text(SOURCE)
    (inside / "broken.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    packaged_text._module.cache_clear()
    yield "heavy_texts.inner.texts"
    packaged_text._module.cache_clear()


@pytest.mark.parametrize(
    ("name", "values", "read"),
    [
        ("FIRST", {}, "new {place}"),
        ("FIRST", {"place": "here"}, "new here"),
        ("TYPED", {}, "typed"),
        ("SEVERAL[1]", {}, "two new {place}"),
        ("Agent.predict.told", {"self.kind": "absolute"}, "The screen has\n{width}x{height}."),
        ("Agent.predict.told", {"self.kind": "other"}, "The screen has\na grid."),
        (
            "Agent.predict.system",
            {"self.kind": "absolute", "width": "{picture_width}"},
            'Tools: {"name": "tool", "told": "The screen has\\n{picture_width}x{height}.", "most": 3, "on": true}',
        ),
        ("Agent.predict.asked_for", {"self.kind": "k", "before": "{previous}"}, "Do {asked} after {previous}, k"),
        ("TODAY", {"now().strftime('%d')": "{date}"}, "Today is {date}."),
        ("FIRST", {"place": {"module": "heavy_texts", "name": "TOP"}}, "new top"),
    ],
)
def test_a_text_is_read_by_name(package: str, name: str, values: dict[str, Any], read: str) -> None:
    text = PackagedText.model_validate({"module": package, "name": name, "values": values})

    assert read_text(text) == read
    assert not any(module.startswith("heavy_texts") for module in sys.modules)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NOTHING", "NOTHING has no value there"),
        ("Agent.run.told", "there is no run"),
        ("Agent.predict.told", "self.kind has no value there"),
        ("SEVERAL[2]", "it has no such entry"),
        ("SEVERAL", "SEVERAL of heavy_texts.inner.texts is not text"),
        ("NUMBER", "is not text"),
        ("LOOP", "it is nested too deeply"),
        ("DEEP", "it is nested too deeply"),
        ("RUN", "calls something"),
        ("FORMATTED", "formats a value"),
        ("TODAY", "calls something"),
        ("1 +", "that is not a name"),
        ("open('x')", "that is not a name"),
    ],
)
def test_what_is_no_text_is_named(package: str, name: str, says: str) -> None:
    with pytest.raises(TextUnreadable, match=r"of heavy_texts\.inner\.texts") as caught:
        read_text(PackagedText(module=package, name=name))

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("no_such_package.texts", "are in the package no_such_package, which is not installed"),
        ("heavy_texts.inner.broken", "the source of heavy_texts.inner.broken cannot be read: SyntaxError"),
        ("heavy_texts.outer", "the installed package heavy_texts has no source of heavy_texts.outer"),
        ("sys", "has no source of sys"),
    ],
)
def test_a_module_that_cannot_be_read_is_named(package: str, module: str, says: str) -> None:
    with pytest.raises(TextUnreadable, match=says):
        read_text(PackagedText(module=module, name="X"))


def test_without_osworlds_package_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged_text._module.cache_clear()
    monkeypatch.setattr(packaged_text.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(
        TextUnreadable, match=r"package desktop-env, which is not installed: uv pip install .*requirements-osworld"
    ):
        read_text(PackagedText(module="mm_agents.opencua.prompts", name="STEP_TEMPLATE"))


def test_values_are_filled_in_once() -> None:
    assert filled("{a} {b} {c} {}", {"a": "{b}", "b": "2"}) == "{b} 2 {c} {}"
    assert filled("{a}", {}) == "{a}"


def test_the_built_in_profiles_load_nothing_heavy() -> None:
    code = "import sys; from rollout_tasks.agents.profiles.built_in import BUILT_IN as b; from"
    code += " rollout_tasks.agents.profiles.profile_texts import with_texts as c; [*map(c, b.values())]; assert not"
    code += " {'PIL', 'mm_agents', 'desktop_env', 'openai', 'numpy'} & sys.modules.keys()"
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
