"""Options of local desktops."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from desktop_image import GuestBuildError, image_named
from vm_pool.egress import PolicyText


def _known(profile: str) -> str:
    try:
        return image_named(profile).name
    except GuestBuildError as error:
        raise ValueError(str(error)) from None


class LocalOptions(BaseModel):
    """How local desktops are made, and how much of the machine each may use."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    profile: Annotated[str, AfterValidator(_known)] = "core"
    """The guest image: core, office, media, browser, full, gnome, or your own (rollouts image build --name). Built on first use."""
    screen_width: int = Field(1920, ge=320, le=7680)
    """Pixels."""
    screen_height: int = Field(1080, ge=200, le=4320)
    """Pixels."""
    memory_mib: int | None = Field(4096, ge=256)
    """Memory of one desktop, its files included; None for no limit."""
    processes: int | None = Field(1024, ge=64)
    """Processes and threads of one desktop; None for no limit."""
    cpus: float | None = Field(None, gt=0)
    """How many processors' time one desktop may use; None for all idle time."""
    disk_mib: int = Field(2048, ge=64)
    """Size of the files that a desktop may write over its image; they are kept in memory."""
    guest_network: PolicyText = "none"
    """Where desktops may go: none, internet, or hosts separated by commas; never to addresses that are not public."""
    start_seconds: float = Field(30.0, gt=0)
    """How long a desktop may take to start."""
    runtime: str | None = None
    """The OCI runtime's command; None for runc if installed, otherwise crun."""
