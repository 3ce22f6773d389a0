"""The upper layer of a guest image: the project's own files.

``files/`` is copied unchanged; the packages ``session`` and ``server`` go to /usr/lib/guest/python. The layer is small
and quick to build, so a changed line does not require a new set of packages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from desktop_image.errors import GuestBuildError

HERE = Path(__file__).parent
LIBRARY = Path("usr/lib/guest/python")
_PACKAGES = ("session", "server")
_COMPILER = """
import base64, json, sys
from importlib import _bootstrap_external as importer
compiled = {}
for path, source in json.load(sys.stdin).items():
    code = compile(source, path, "exec", dont_inherit=True)
    unchecked = importer._code_to_hash_pyc(code, importer._imp.source_hash(importer._RAW_MAGIC_NUMBER, source.encode()), False)
    compiled[path] = base64.b64encode(unchecked).decode()
json.dump([sys.implementation.cache_tag, compiled], sys.stdout)
"""


def digest(suite: str) -> str:
    """Returns an id of this layer's content, for a guest with this release's Python."""
    made_from = hashlib.sha256(f"{suite}{_COMPILER}".encode())
    for inside, source in _content():
        made_from.update(f"{inside} {source.stat().st_mode & 0o111}\0".encode() + source.read_bytes() + b"\0")
    return made_from.hexdigest()[:16]


def build(target: Path, packages: Path, progress: Callable[[str], None]) -> None:
    """Fills `target`, which must not exist. The Python in `packages` compiles the code.

    Raises:
        GuestBuildError: The guest's Python does not run, or cannot compile the code.
    """
    progress("Adding the session and the server")
    target.mkdir()
    sources = {}
    for inside, source in _content():
        made = target / inside
        made.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, made)
        made.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
        if made.suffix == ".py":
            sources[f"/{inside}"] = source.read_text()
    for path, compiled in _compile(sources, packages).items():
        made = target / path.lstrip("/")
        made.parent.mkdir(exist_ok=True)
        made.write_bytes(compiled)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


def _content() -> Iterator[tuple[Path, Path]]:
    """Yields every file: its path in the guest, and its path here."""
    for source in sorted(path for path in (HERE / "files").rglob("*") if path.is_file()):
        yield source.relative_to(HERE / "files"), source
    for package in _PACKAGES:
        for source in sorted((HERE / package).rglob("*.py")):
            yield LIBRARY / source.relative_to(HERE), source


def _compile(sources: dict[str, str], packages: Path) -> dict[str, bytes]:
    """Returns byte code by path; the guest uses it unchecked, since the layer never changes."""
    done = subprocess.run(  # noqa: S603
        ["chroot", str(packages), "/usr/bin/python3", "-c", _COMPILER],  # noqa: S607
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise GuestBuildError(f"the guest's Python could not compile the session and the server: {reason}")
    tag, compiled = json.loads(done.stdout)
    return {
        f"{Path(path).parent}/__pycache__/{Path(path).stem}.{tag}.pyc": base64.b64decode(code)
        for path, code in compiled.items()
    }
