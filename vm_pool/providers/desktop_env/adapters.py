"""The adapter of each of desktop-env's providers: what it needs, and fixes for what it hides."""

from __future__ import annotations

from collections.abc import Mapping

from vm_pool.providers.desktop_env.adapter import Adapter
from vm_pool.providers.desktop_env.cloud_adapters import AWS, Aliyun, Azure, Volcengine
from vm_pool.providers.desktop_env.hypervisor_adapters import Docker, VirtualBox, VMware

ADAPTERS: Mapping[str, type[Adapter]] = {
    "vmware": VMware,
    "virtualbox": VirtualBox,
    "docker": Docker,
    "aws": AWS,
    "azure": Azure,
    "aliyun": Aliyun,
    "volcengine": Volcengine,
}
