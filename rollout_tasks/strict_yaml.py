"""Reads the YAML of run files and profile files, without what people do not expect of it, and writes what it reads.

A repeated key is an error, 1e-5 is a number, as in YAML 1.2, and aliases cannot make a short file a huge value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

MOST_ADDED = 20_000
"""Keys, entries and values that a file's aliases may stand for together."""
_FLOAT, _FIRST_OF_NUMBERS = "tag:yaml.org,2002:float", list("-+.0123456789")
_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")


class UnwelcomeYaml(ValueError):
    """It is YAML, but says something twice, or has too many values; the message completes "FILE: "."""


class NoYaml(ValueError):
    """It is not YAML; the message says where and why, in one line."""


def load_yaml(text: str) -> Any:
    """Returns the values of a text.

    Raises:
        UnwelcomeYaml: A mapping has a key twice, or aliases make the text too many values.
        NoYaml: The text is not YAML.
    """
    import yaml  # here, because few commands need YAML

    try:
        return yaml.load(text, _loader())  # noqa: S506 - a SafeLoader
    except UnwelcomeYaml:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NoYaml(" ".join(str(error).split())[:300]) from error


def dump_yaml(values: Any) -> str:
    """Returns plain values as text that `load_yaml` reads again."""
    import yaml  # here, because few commands need YAML

    class Dumper(yaml.SafeDumper):
        """Quotes text that the loader would take for a number."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    Dumper.add_implicit_resolver(_FLOAT, _EXPONENT, _FIRST_OF_NUMBERS)
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def _loader() -> type[yaml.SafeLoader]:
    """Returns the loader; made here because few commands need YAML."""
    import yaml  # here, because few commands need YAML

    class Loader(yaml.SafeLoader):
        def get_single_node(self) -> yaml.Node | None:
            node = super().get_single_node()
            if node is not None:
                _count(node, {})
            return node

        def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    line = key.start_mark.line + 1
                    if key.value in lines:
                        raise UnwelcomeYaml(f"{key.value} occurs twice, in lines {lines[key.value]} and {line}")
                    lines[key.value] = line
            return node

    Loader.add_implicit_resolver(_FLOAT, _EXPONENT, _FIRST_OF_NUMBERS)
    return Loader


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Returns how many values a node has, those of its aliases included.

    Args:
        node: A node.
        known: What was counted so far, by the nodes' ids; 0 for those that are being counted.
    """
    if id(node) in known:
        if not known[id(node)]:
            raise UnwelcomeYaml(f"line {node.start_mark.line + 1}: an alias stands in what it stands for")
        return known[id(node)]
    known[id(node)] = 0
    inside: list[yaml.Node] = []
    if isinstance(node.value, list):
        for entry in node.value:
            inside += entry if isinstance(entry, tuple) else (entry,)
    total = 1 + sum(_count(one, known) for one in inside)
    if total > len(known) + MOST_ADDED:  # without aliases it has no more than there are nodes
        raise UnwelcomeYaml(f"its aliases stand for more than {MOST_ADDED} values")
    known[id(node)] = total
    return total
