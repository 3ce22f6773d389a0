"""The OpenAPI document is true: Schemathesis sends what it allows and what it does not, and all replies are as it says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.integrations.openenv_server import MINUTES, environment_with
from tests.integration.service.desktop_service import DesktopService
from tests.virtual_machines import wait_until

SCHEMATHESIS = "schemathesis==4.32.5"
EXCLUDED = (
    # A lease that waits, or a desktop that is not there, is a refusal that no schema can foresee.
    "positive_data_acceptance",
    # An empty body, and a query that is not known, are taken.
    "negative_data_rejection",
    # Nothing of what one call makes is there to be found by the next in these runs.
    "ensure_resource_availability",
    "use_after_free",
    # The older routes take the token elsewhere, too; an unknown one there is refused as such.
    "missing_required_header",
    "ignored_auth",
)


def test_the_document_describes_what_is_served(service: DesktopService) -> None:
    document = httpx.get(f"{service.url}/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert {"/leases", "/leases/{lease_id}/act", "/start_emulator", "/health"} <= set(document["paths"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, reply in operation["responses"].items():
                for content in reply["content"].values():
                    name = content["schema"].get("$ref", "").rpartition("/")[2]
                    assert not name or name in document["components"]["schemas"], (path, method, status, name)
            assert bool(operation["security"]) == ("401" in operation["responses"])
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60)
@pytest.mark.parametrize("with_token", [True, False])
def test_nothing_is_answered_otherwise(
    service: DesktopService, alice: httpx.Client, token: str, with_token: bool
) -> None:
    here = importlib.util.find_spec("schemathesis") is not None
    python = Path(sys.executable) if here else environment_with(SCHEMATHESIS.replace("==", "-"), SCHEMATHESIS)
    command = [str(python), "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json", "--checks", "all"]
    command += ["--exclude-checks", ",".join(EXCLUDED), "--max-examples", "15", "--seed", "1", "--no-color"]
    command += ["--phases", "coverage,fuzzing"]
    command += ["--header", f"Authorization: Bearer {token}"] if with_token else []
    done = subprocess.run(command, cwd=service.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for one in alice.get("/leases").json()["leases"]:
        alice.delete(f"/leases/{one['lease_id']}")
    wait_until(lambda: json.loads(alice.get("/leases").text) == {"leases": []}, seconds=20)
    assert "failed" not in service.said()
