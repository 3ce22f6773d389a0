"""The example notebooks, run by a real kernel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from rollout_tasks.redis_client import connect
from tests.conftest import REPOSITORY, ValkeyServer
from tests.integration.service.desktop_service import PORTS, VMS, DesktopService, all_free
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint


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


@pytest.mark.slow
def test_desktops_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "valkey").mkdir()
    valkey = ValkeyServer(tmp_path / "valkey", aof=False)
    valkey.start()
    with connect(tries=1, url=valkey.url) as client:
        pool = VMPool(client)
        for vm_id in VMS:
            pool.register(vm_id, Endpoint("127.0.0.1", PORTS))
        service = DesktopService(valkey, tmp_path)
        monkeypatch.setenv("DESKTOPS_URL", service.url)
        monkeypatch.setenv("DESKTOPS_TOKEN", service.token("alice", 2))
        monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
        notebook = nbformat.read(REPOSITORY / "examples" / "notebooks" / "desktops.ipynb", as_version=4)

        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

        items, ttl, held, counted, left = (shown(cell) for cell in notebook.cells if cell.get("outputs"))
        assert (items, ttl, left) == ("['one', 'two']", "20.0", "0")
        assert all(f"'{vm_id}'" in held for vm_id in VMS)
        assert counted == "Counter({'ready': 2})"
        wait_until(lambda: all_free(pool), seconds=20)
        service.stop()
        pool.close()
    valkey.kill_at_once()


def shown(cell: Any) -> str:
    """What a cell's last expression came to."""
    (result,) = (output for output in cell.outputs if output.output_type == "execute_result")
    return str(result["data"]["text/plain"])
