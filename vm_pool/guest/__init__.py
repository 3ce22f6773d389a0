"""The guest image: a Debian root with a desktop session and an HTTP server, for containers and virtual machines alike.

``recipe/`` says how its packages are put together, ``files/``, ``session/`` and ``server/`` are what the project adds to them.
Only this package's top level runs on the host; ``session`` and ``server`` run inside the guest, with what Debian has there.
"""

from vm_pool.guest.cache import Progress
from vm_pool.guest.disk import GuestDisk, disk_of, guest_disk
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.image_facts import facts_of_image, kept_facts
from vm_pool.guest.images import Image, define, image_named, image_names
from vm_pool.guest.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT
from vm_pool.guest.profiles import PROFILES
from vm_pool.guest.release import Release
from vm_pool.guest.root import GuestRoot, guest_image_name, guest_root, root_of, size_of
from vm_pool.guest.stock import Stocked, prune, remove_image, stock

__all__ = [
    "GUEST_ID_COUNT",
    "GUEST_ID_SHIFT",
    "PROFILES",
    "GuestBuildError",
    "GuestDisk",
    "GuestRoot",
    "Image",
    "Progress",
    "Release",
    "Stocked",
    "define",
    "disk_of",
    "facts_of_image",
    "guest_disk",
    "guest_image_name",
    "guest_root",
    "image_named",
    "image_names",
    "kept_facts",
    "prune",
    "remove_image",
    "root_of",
    "size_of",
    "stock",
]
