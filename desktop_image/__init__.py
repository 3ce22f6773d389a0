"""The guest image: a Debian root with a desktop session and an HTTP server, for containers and virtual machines.

``recipe/`` prepares Debian's packages; the project adds ``files/``, ``session/`` and ``server/``. ``session`` and
``server`` run inside the guest, with what Debian has there; the top level and most of ``conformance`` run on the host.
"""

from desktop_image.cache import ProgressCallback
from desktop_image.cached_images import CachedImage, is_built, list_images, prune, remove_image
from desktop_image.disk import GuestDisk, disk_of, guest_disk
from desktop_image.errors import GuestBuildError
from desktop_image.image_facts import facts_of_image, kept_facts
from desktop_image.images import Image, define, image_named, image_names
from desktop_image.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT
from desktop_image.profiles import PROFILES
from desktop_image.release import Release
from desktop_image.root import GuestRoot, guest_image_name, guest_root, root_of, size_of

__all__ = [
    "GUEST_ID_COUNT",
    "GUEST_ID_SHIFT",
    "PROFILES",
    "CachedImage",
    "GuestBuildError",
    "GuestDisk",
    "GuestRoot",
    "Image",
    "ProgressCallback",
    "Release",
    "define",
    "disk_of",
    "facts_of_image",
    "guest_disk",
    "guest_image_name",
    "guest_root",
    "image_named",
    "image_names",
    "is_built",
    "kept_facts",
    "list_images",
    "prune",
    "remove_image",
    "root_of",
    "size_of",
]
