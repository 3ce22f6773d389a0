"""The examples of docs/how-to/extend.md, as installed packages: each block's files in a folder, and its entry point beside them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-to" / "extend.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.M | re.S)
_INSTALL = re.compile(r"^PATH=\S+ uv pip install --quiet --editable \./(\S+)$", re.M)


def examples() -> dict[str, str]:
    """Returns the blocks that install a package, by its name."""
    return {found[1]: block for block in _BLOCK.findall(PAGE.read_text("utf-8")) if (found := _INSTALL.search(block))}


def install(name: str, folder: Path) -> str:
    """Does what a block does before its last command, in a folder, and returns that command.

    In place of uv, which would change the environment that tests run in, it writes down the entry points as uv does.
    The package is found once ``<folder>/<name>`` is on the path.
    """
    written, _, command = _INSTALL.split(examples()[name])
    subprocess.run(["bash", "-euc", written], cwd=folder, check=True, timeout=60)
    project = tomllib.loads((folder / name / "pyproject.toml").read_text())["project"]
    info = folder / name / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    points = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in some.items()) for group, some in groups]
    (info / "entry_points.txt").write_text("".join(points))
    return command.strip()
