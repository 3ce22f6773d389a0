"""Options of the VMs that desktop-env provides."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DesktopEnvOptions(BaseModel):
    """Which VM to use, and how long each operation may take."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    path_to_vm: str | tuple[str, ...] | None = None
    """The VM as desktop-env names it: a .vmx file, a VirtualBox VM, a qcow2 file for docker, RESOURCE_GROUP/VM.

    Several VMs need several names, except docker's. None: desktop-env downloads an image, or makes an instance. aws,
    aliyun and volcengine delete their instances after use, and refuse names.
    """
    region: str | None = None
    """A cloud's region; for VirtualBox, the network adapter to bridge to."""
    snapshot_name: str = "init_state"
    """The snapshot that a VM is reverted to; for aws an AMI, where init_state stands for OSWorld's own.

    docker, aliyun and volcengine have one image and ignore it.
    """
    headless: bool = False
    """Whether to show no window on this machine."""
    os_type: Literal["Ubuntu", "Windows"] = "Ubuntu"
    screen_width: int = Field(1920, ge=320, le=7680)
    """Pixels."""
    screen_height: int = Field(1080, ge=200, le=4320)
    """Pixels."""
    find_seconds: float = Field(7200.0, gt=0)
    """How long finding a VM may take: downloading an image of many gigabytes, or making an instance."""
    boot_seconds: float = Field(900.0, gt=0)
    """How long a VM may take from its start to its first screenshot."""
    revert_seconds: float = Field(900.0, gt=0)
    """How long reverting may take."""
    stop_seconds: float = Field(300.0, gt=0)
    """How long stopping may take."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All VMs that are given."""
        if self.path_to_vm is None:
            return ()
        return (self.path_to_vm,) if isinstance(self.path_to_vm, str) else self.path_to_vm
