"""The provider `qemu`: each VM is a real virtual machine, with hardware acceleration where that works."""

from vm_pool.providers.qemu.provider import QemuProvider

__all__ = ["QemuProvider"]
