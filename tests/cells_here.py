"""Whether this machine can make cells: tests of them skip where it cannot, and fail where the program is what cannot."""

from __future__ import annotations

import re
from typing import NoReturn

import pytest

_OF_THE_PROGRAM = re.compile(r"\b(ModuleNotFound|Import|Syntax|Indentation|Name|Attribute|Type|Key)Error: ")


def no_cells_here(why: str) -> NoReturn:
    """Skips the test for a reason of the machine.

    Args:
        why: What was said when a cell was to be made.
    """
    if _OF_THE_PROGRAM.search(why):
        pytest.fail(f"no cell can be made, for no reason of this machine: {why}")
    pytest.skip(why)
