"""What is at a copy's URL: units with their manifests. A unit is replaced so that a killed command leaves it as incomplete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.local_folder import HashedFile, LocalFolder
from rollout_tasks.runs.copies.manifest import MOST_BYTES, FileFacts, Manifest, manifest_name, parsed, unit_of
from rollout_tasks.runs.copies.names import RESULT, ROLLOUTS, SET_ASIDE
from rollout_tasks.runs.copies.remote_folder import RemoteFolder
from rollout_tasks.unicode_text import one_line
from rollout_tasks.validation_messages import shown

_MOST_UNITS = 2_000_000


class RemoteCopy:
    """The copy at a URL, as it was when it was looked at and as this process has changed it."""

    def __init__(self, remote: RemoteFolder) -> None:
        """Looks at what is there.

        Raises:
            RemoteError: It cannot be listed or read.
        """
        self.remote = remote
        self.manifests: dict[str, Manifest] = {}
        self.broken: dict[str, str] = {}
        """The manifests that cannot be read, each with what is wrong, by the name of the object."""
        self.counted: Counter[str] = Counter()
        """What this process did: files ``sent``, ``kept`` and ``removed``, and ``bytes`` sent."""
        self._seen: set[str] = set()
        self._sizes = remote.sizes()
        names = {name: unit for name in self._sizes if (unit := unit_of(name)) is not None}
        if len(names) > _MOST_UNITS:
            raise UserError(f"{remote.url}: has more than {_MOST_UNITS:,} manifests")
        remote.each(self._load, names.items())

    @property
    def is_foreign(self) -> bool:
        """Whether there are objects, and no manifest of a copy."""
        return bool(self._sizes) and not self.manifests and not self.broken

    def size_of(self, name: str) -> int | None:
        """Returns the size of an object, whether a manifest names it or not; None if it is not there."""
        return self._sizes.get(name)

    def _load(self, named: tuple[str, str]) -> None:
        name, unit = named
        size = min(self._sizes[name], MOST_BYTES)
        try:
            self.manifests[unit] = parsed(unit, self.remote.read(name, size + 1) if size else b"")
        except (ValueError, RecursionError) as error:
            self.broken[name] = one_line(str(error))

    def is_there(self, name: str, facts: FileFacts, unit: str) -> bool:
        """Whether a file is there, as its unit's manifest and its size say."""
        manifest = self.manifests.get(unit)
        return manifest is not None and manifest.files.get(name) == facts and self._sizes.get(name) == facts.size

    def replace(self, unit: str, files: Sequence[HashedFile], local: LocalFolder, *, mirror: bool = False) -> bool:
        """Makes a unit what the local files are; what is there already is not sent again.

        Args:
            unit: The unit.
            files: Its files.
            local: The folder that they are in, by the same names.
            mirror: Removes files that are not among them. Else those stay, because somebody may have made room here, but for
                those that a resume has moved.

        Returns:
            Whether anything had to be written.

        Raises:
            Changed: A local file is not any more what it was; the unit is incomplete.
            OSError: A local file cannot be read.
            RemoteError: It cannot be written; the unit is incomplete.
        """
        before = self.manifests.get(unit)
        wanted = {file.name: FileFacts(file.size, file.sha256) for file in files}
        there = {name for name, facts in wanted.items() if self.is_there(name, facts, unit)}
        if before is not None and not mirror:
            for name, facts in before.known.items():
                if name not in wanted and self.is_there(name, facts, unit) and not _was_moved(name, unit, wanted):
                    wanted[name] = facts
                    there.add(name)
        if unit not in self._seen:  # later, what is there may be what was sent before
            self.counted["kept"] += len(there)
            self._seen.add(unit)
        if before == (after := Manifest(unit, True, wanted)) and len(there) == len(wanted):
            return False
        stale = [name for name in (before.files if before else ()) if name not in wanted]
        self._write(Manifest(unit, False, wanted | dict.fromkeys(stale) | dict.fromkeys(wanted.keys() - there)))
        missing = [file for file in files if file.name not in there]
        self.remote.each(lambda file: self._send(file, local), missing)
        self.remote.each(self._remove, stale)
        self._write(after)
        self.counted.update(sent=len(missing), bytes=sum(file.size for file in missing), removed=len(stale))
        return True

    def withdraw(self, unit: str) -> None:
        """Marks a unit as incomplete: what it says is no longer so. Its files stay until it is replaced.

        Raises:
            RemoteError: It cannot be written.
        """
        manifest = self.manifests.get(unit)
        if manifest is not None and manifest.complete:
            self._write(Manifest(unit, False, manifest.files))

    def _send(self, file: HashedFile, local: LocalFolder) -> None:
        self.remote.say(f"sends {shown(file.name)} ({file.size:,} bytes)")
        with local.opened(file.name, file) as opened:
            self.remote.put(file.name, opened, file.size)
        self._sizes[file.name] = file.size

    def _remove(self, name: str) -> None:
        self.remote.remove(name)
        self._sizes.pop(name, None)

    def _write(self, manifest: Manifest) -> None:
        self.remote.write(manifest_name(manifest.unit), manifest.as_bytes())
        self.manifests[manifest.unit] = manifest


def _was_moved(name: str, unit: str, files: Mapping[str, object]) -> bool:
    """Whether a resume has moved a file of a rollout aside, and it is there under its new name, or its whole attempt is."""
    folder = unit.removeprefix(ROLLOUTS) + "/"
    parts = name.removeprefix(folder).split("/")
    if not unit.startswith(ROLLOUTS) or SET_ASIDE.fullmatch(parts[0]):
        return False
    marker = RESULT if parts == [RESULT] else f"{parts[0]}/{RESULT}"
    for other in files:
        first, _, rest = other.removeprefix(folder).partition("/")
        if SET_ASIDE.fullmatch(first) and rest == marker:
            return True
    return False
