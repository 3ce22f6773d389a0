"""Cells to run hostile code in."""

from tests.integration.cells.conftest import inside, opened, template

__all__ = ["inside", "opened", "template"]
