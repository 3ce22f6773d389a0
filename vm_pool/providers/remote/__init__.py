"""The provider `remote`: desktops of a service that lends them over HTTP, this project's or DART's.

`provider` is what a VM host calls, `emulator_service` asks the service, and `records` remembers what was lent, for whoever
comes after a crash.
"""

from vm_pool.providers.remote.provider import RemoteProvider

__all__ = ["RemoteProvider"]
