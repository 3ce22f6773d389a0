"""The docs: every command block of the README and of the site is run as it stands, or says above it why it is not.

The blocks of a page are run one after the other in one shell, in a copy of the repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from rollout_tasks.errors import FailureClass
from tests.conftest import REPOSITORY, ValkeyServer

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    if path.name != "CHANGELOG.md"
)
BLOCK = re.compile(
    r"^( *)(<!-- not run: (?P<why>[^\n]+) -->\n\s*)?```(?P<language>bash|python)\n(?P<code>.*?)^ *```", re.M | re.S
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE_SECONDS = 400


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[tuple[str, str]]:
    """(language, code) of those that are to be run."""
    found = []
    for match in BLOCK.finditer(text_of(page)):
        if match["why"] is None:
            code = "".join(line.removeprefix(match[1]) for line in match["code"].splitlines(keepends=True))
            found.append((match["language"], code))
    return found


def commands_of(page: str) -> tuple[str, ...]:
    """Its blocks without comments, which are in the page's language."""
    return tuple(re.sub(r"(^|\s+)#.*$", "", code, flags=re.M) for _, code in blocks_of(page))


RUN = list({commands_of(page): page for page in reversed(PAGES) if blocks_of(page)}.values())
"""Of pages with the same commands, the first."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's files, with this one's virtual environment."""
    there = tmp_path / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            (there / name).write_bytes((REPOSITORY / name).read_bytes())
            (there / name).chmod((REPOSITORY / name).stat().st_mode)
    (there / ".venv").symlink_to(Path(sys.prefix))
    (there / ".uv").symlink_to(REPOSITORY / ".uv")
    return there


LONG = {
    "docs/how-to/compare.md",
    "docs/how-to/data.md",
    "docs/how-to/models.md",
    "docs/how-to/python.md",
    "docs/how-to/workers.md",
    "docs/tutorials/first-evaluation.md",
    "docs/tutorials/quickstart.md",
}
"""Pages whose blocks are several whole runs."""


@pytest.mark.timeout(PAGE_SECONDS + 60)
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in RUN])
def test_the_blocks_of_a_page_run_as_they_stand(page: str, copy: Path, valkey: ValkeyServer) -> None:
    lines = ["set -euo pipefail", f"export PATH={Path(sys.executable).parent}:$PATH"]
    for number, (language, code) in enumerate(blocks_of(page)):
        if language == "python":
            (copy / f"block_{number}.py").write_text(code)
            code = f"python block_{number}.py\n"
        lines.append(code)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_"))
    }
    environment |= {
        "HOME": str(copy.parent / "home"),
        "PYTHONPATH": str(copy),
        "XDG_CACHE_HOME": str(copy.parent / "cache"),
    }
    if "<!-- with a broker -->" in text_of(page):
        environment["REDIS_URL"] = valkey.url
    (copy.parent / "home").mkdir()
    with (copy.parent / "said").open("w+") as said:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(lines)],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(PAGE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of the page runs any more
                os.killpg(shell.pid, signal.SIGTERM)
        said.seek(0)
        assert code == 0, said.read()[-4000:]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_a_page_says_what_it_is(page: str) -> None:
    """One without a language would look like a command and be run by nobody."""
    opened = re.findall(r"^ *```(\w*)\n.*?^ *```$", text_of(page), re.M | re.S)

    assert set(opened) <= {"bash", "python", "json", "yaml", "mermaid", "text"}


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    folder = (REPOSITORY / page).parent
    links = [unquote(link) for link in LINK.findall(text_of(page)) if not re.match(r"[a-z]+:|#", link)]
    generated = {REPOSITORY / "docs" / "reference" / "commands.md"}
    missing = [
        link
        for link in links
        if not (there := (folder / link.partition("#")[0]).resolve()).exists() and there not in generated
    ]
    assert missing == []


def test_the_readmes_are_short_and_say_the_same() -> None:
    english, chinese = text_of("README.md"), text_of("README.zh-CN.md")

    assert len(english.splitlines()) <= 150
    assert commands_of("README.md") == commands_of("README.zh-CN.md")
    assert [link for link in LINK.findall(english) if link.startswith("docs/")] == [
        link for link in LINK.findall(chinese) if link.startswith("docs/")
    ]


def test_every_page_is_in_the_sites_navigation() -> None:
    navigation = text_of("mkdocs.yml").partition("\nnav:\n")[2]
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}

    assert pages == {*re.findall(r"[\w/-]+\.md", navigation)} - {"reference/commands.md"}


@pytest.mark.parametrize("page", PAGES)
def test_the_sites_program_is_called_where_developers_have_it(page: str) -> None:
    """It is in no lock but the developers', and so on the path of few."""
    for place in re.finditer(r"(?P<before>\S*)mkdocs serve", text_of(page)):
        assert place["before"].endswith(".venv/bin/")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Links to pages and their parts lead somewhere; the search works in a folder, too; other hosts are asked for nothing."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
    assert (site / "search" / "search_index.js").stat().st_size > 10_000
    page = (site / "index.html").read_text(encoding="utf-8")
    assert "javascript/iframe-worker.js" in page
    taken = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)", page)
    assert len(taken) > 5
    assert not [address for address in taken if "//" in address]
    assert (site / "reference" / "commands.html").is_file()


def test_the_table_of_failure_classes_is_what_the_code_does() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\w ]+) \| (\w+) \|$", text_of("docs/reference/failures.md"), re.M)
    retried = {True: "yes", False: "no"}
    expected = [(one.value, retried[one.retried], one.counted_as) for one in FailureClass]
    by_then = {"worker_lost": "already retried"}  # each time that its worker had died

    assert rows == [(name, by_then.get(name, again), counted) for name, again, counted in expected]
