"""What is known of images, kept in the cache beside the guest images: found once for each image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from desktop_image.cache import Progress, cache_folder, part
from desktop_image.conformance.facts import VERSION

_FILE = "facts"


def facts_folder_name(image: str) -> str:
    """What the folder of an image's facts is called now; its guests' network is none of the image's."""
    return f"facts-{image.partition('+')[0]}-{VERSION}"


def kept_facts(image: str) -> str:
    """What is known of an image; empty when nothing is."""
    try:
        return Path(cache_folder(), facts_folder_name(image), _FILE).read_text(encoding="ascii") if image else ""
    except (OSError, UnicodeDecodeError):
        return ""


def facts_of_image(image: str, find: Callable[[], str], progress: Progress) -> str:
    """What is known of an image, found first where nothing is.

    Args:
        image: Its name; one without a name is looked at each time.
        find: Looks.
        progress: Told when another process is looking at the same image.

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
