"""Facts about images, found once for each image and kept in the cache beside the guest images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from desktop_image.cache import ProgressCallback, guest_cache_folder, part
from desktop_image.conformance.facts import VERSION

_FILE = "facts"


def facts_folder_name(image: str) -> str:
    """Returns the current name of the folder of an image's facts, which does not include its guests' network."""
    return f"facts-{image.partition('+')[0]}-{VERSION}"


def kept_facts(image: str) -> str:
    """Returns the stored facts about an image; empty when they are not found."""
    try:
        return Path(guest_cache_folder(), facts_folder_name(image), _FILE).read_text(encoding="ascii") if image else ""
    except (OSError, UnicodeDecodeError):
        return ""


def facts_of_image(image: str, find: Callable[[], str], progress: ProgressCallback) -> str:
    """Returns the facts about an image; finds them first when they are missing.

    Args:
        image: Its name; without a name, the facts are found each time.
        find: Finds the facts.
        progress: Called when another process is examining the same image.

    Raises:
        GuestBuildError: The facts cannot be stored.
    """
    if not image:
        return find()

    def build(target: Path) -> None:
        found = find()
        target.mkdir()
        (target / _FILE).write_text(found, encoding="ascii")

    part(facts_folder_name(image), build, progress, as_root=False)
    return kept_facts(image)
