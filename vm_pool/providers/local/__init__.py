"""The local provider: desktops in OCI containers on this machine, without a daemon."""

from vm_pool.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
