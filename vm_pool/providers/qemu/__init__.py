"""The provider `qemu`: a real virtual machine per VM, hardware-accelerated where that works."""

from vm_pool.providers.qemu.provider import QemuProvider

__all__ = ["QemuProvider"]
