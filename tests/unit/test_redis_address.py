from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rollout_tasks.redis_address import checked_redis_url, tls_options, without_options

REPOSITORY = Path(__file__).parents[2]
SECRET = "hunter2"
RIGHT = [
    "redis://127.0.0.1:6379/0",
    f"redis://:{SECRET}@host",
    f"rediss://user:{SECRET}%23x@host.example:6380/12?ssl_cert_reqs=required",
    f"redis://:{SECRET}@[::1]:6379/0",
    f"rediss://:{SECRET}@host:6379/0?ssl_check_hostname=false&ssl_ca_certs={__file__}&ssl_ca_path=/etc/ssl/certs",
]
WRONG = [
    f"redis://:{SECRET}#x@host:6379/0",
    f"redis://:{SECRET}/x@host:6379/0",
    f"redis://:{SECRET}?x@host:6379/0",
    f"redis://:{SECRET}@x@host:6379/0",
    f"redis://:{SECRET}[x@host:6379/0",
    f"redis://:{SECRET}@host:{SECRET}/0",
    f"redis://:{SECRET}@host:70000/0",
    f"redis://:{SECRET}@host:0/0",
    f"redis://:{SECRET}@/0",
    f"redis://:{SECRET}@host:6379/{SECRET}",
    f"redis://:{SECRET}@host:6379/0?{SECRET}=1",
    f"rediss://:{SECRET}@host:6379/0?ssl_validate_ocsp=true",
    f"redis://:{SECRET}@host:6379/0?ssl_cert_reqs=none",
    f"redis://:{SECRET}@host:6379/0\n",
    f"http://:{SECRET}@host:6379/0",
    f"redis:/:{SECRET}@host:6379/0",
    SECRET,
    "",
    "unix:///run/redis.sock?db=1",
]


@pytest.mark.parametrize("url", RIGHT)
def test_an_address_stays_as_it_is(url: str) -> None:
    assert checked_redis_url(url) == url


@pytest.mark.parametrize("url", WRONG)
def test_what_is_none_is_said_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="must look like redis://") as caught:
        checked_redis_url(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("ssl_cert_reqs=CERT_NONE", "its ssl_cert_reqs is not one of required, optional, none"),
        ("ssl_cert_reqs=", "its ssl_cert_reqs is not one of required, optional, none"),
        ("ssl_ca_certs=/nowhere", "its ssl_ca_certs does not name a file that can be read here"),
        (f"ssl_certfile={__file__}&ssl_keyfile=", "its ssl_keyfile does not name a file that can be read here"),
    ],
)
def test_an_option_of_tls_that_can_never_work_is_said(options: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong}$"):
        checked_redis_url(f"rediss://:{SECRET}@host/0?{options}")


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ("", {"ssl_cert_reqs": "required"}),
        ("?ssl_cert_reqs=none", {"ssl_cert_reqs": "none"}),
        (
            "?ssl_ca_certs=/a%20b&ssl_check_hostname=False",
            {"ssl_cert_reqs": "required", "ssl_ca_certs": "/a b", "ssl_check_hostname": False},
        ),
    ],
)
def test_a_certificate_is_required_unless_the_url_says_otherwise(options: str, known: dict[str, object]) -> None:
    assert tls_options(f"rediss://:{SECRET}@host:6379/0{options}") == known
    assert tls_options(f"redis://:{SECRET}@host:6379/0{options}") == {}
    assert without_options(f"rediss://:{SECRET}@host:6379/0{options}") == f"rediss://:{SECRET}@host:6379/0"


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "celery", "-A", "rollout_tasks", "worker"],
        ["scripts/pool.py", "status"],
        ["scripts/vm_host.py", "--num-vms", "1", "--provider", "simulated"],
        ["scripts/submit.py", "--data-path", "examples/items.jsonl"],
    ],
    ids=["worker", "pool", "vm_host", "submit"],
)
def test_no_command_shows_it(command: list[str]) -> None:
    said = subprocess.run(
        [sys.executable, *command],
        env={"PATH": "/usr/bin:/bin", "REDIS_URL": WRONG[0], "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 2, said.stderr
    assert SECRET not in said.stdout + said.stderr
    assert said.stderr.startswith(
        "error: REDIS_URL: must look like redis://:password@host:6379/0: its host or its port "
    )
    assert said.stderr.count("\n") == 1
