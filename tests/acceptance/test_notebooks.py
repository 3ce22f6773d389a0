"""The example notebooks, run by a real kernel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import REPOSITORY


@pytest.mark.slow
def test_a_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    place = tmp_path / "examples" / "notebooks"
    notebook = nbformat.read(place / "first_run.ipynb", as_version=4)

    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(place)}}).execute()

    score, answers, came = (shown(cell) for cell in notebook.cells if cell.get("outputs"))
    assert score == "1.0"
    assert answers.count("'completed'") == 5
    assert came.count("'completed'") == 2


def shown(cell: Any) -> str:
    """What a cell's last expression came to."""
    (result,) = (output for output in cell.outputs if output.output_type == "execute_result")
    return str(result["data"]["text/plain"])
