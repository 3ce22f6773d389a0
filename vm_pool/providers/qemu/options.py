"""Options of virtual machines made with QEMU."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from vm_pool.egress import PolicyText, parse_policy

GUEST_MEMORY_MIB = 2048
OWN_MEMORY_MIB = 4096


class QemuOptions(BaseModel):
    """What to boot, and how much of the machine each VM may use."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    path_to_vm: Path | None = None
    """Your own disk image to boot, such as OSWorld's qcow2; never written to. None: the guest image of `profile`."""
    profile: str = "core"
    """The guest image: core, office, media, browser or full. Built on first use."""
    screen_width: int = Field(1920, ge=320, le=7680)
    """Pixels."""
    screen_height: int = Field(1080, ge=200, le=4320)
    """Pixels."""
    memory_mib: int | None = Field(None, ge=256)
    """Memory of one VM; None for 2048, or 4096 for your own image."""
    cpus: int = Field(2, ge=1, le=64)
    """Processors of one VM."""
    guest_network: PolicyText = "none"
    """Where VMs may go: none, internet, or hosts separated by commas; never to addresses that are not public."""
    os_type: Literal["Ubuntu", "Windows"] = "Ubuntu"
    """The system of your own image: any Linux has drivers for virtual devices, Windows needs a PC's."""
    firmware: Literal["auto", "bios", "uefi"] = "auto"
    """The firmware for your own image; auto decides from its disk's partitions."""
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """kvm: the processor's own virtualisation. tcg: software emulation. auto: kvm where a small machine boots with it,
    until a guest does not.
    """
    client_password: str = "password"  # noqa: S105 (everybody knows it)
    """The password of the user in your own image, to set its clock after a reset."""
    boot_seconds: float = Field(300.0, gt=0)
    """How long a VM may take to start."""

    @property
    def goes_out(self) -> bool:
        """Whether a VM may reach any host."""
        return parse_policy(self.guest_network).reaches_anything

    @property
    def memory(self) -> int:
        """MiB of memory of one VM."""
        if self.memory_mib is not None:
            return self.memory_mib
        return GUEST_MEMORY_MIB if self.path_to_vm is None else OWN_MEMORY_MIB
