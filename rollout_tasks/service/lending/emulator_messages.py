"""What clients of the older service send and get, field for field; see `emulator_routes`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel

LARGEST_LIMIT = 100_000


class _Sent(BaseModel):
    model_config = ConfigDict(extra="allow")


class StartRequest(_Sent):
    """Asks for a desktop."""

    token: str | None = Field(None, max_length=1000, description="In place of the header.")


class StopRequest(StartRequest):
    """Gives a desktop back."""

    emulator_id: str = Field(min_length=1, max_length=1000)


class LimitRequest(_Sent):
    """Changes the quota of a token."""

    token: str = Field(min_length=1, max_length=1000, description="The token, or the name of its holder.")
    limit: Annotated[int, Field(ge=0, le=LARGEST_LIMIT)]


class TokenQuery(BaseModel):
    """What a request's address may say."""

    token: str | None = Field(None, max_length=1000, description="In place of the header.")


class Ports(BaseModel):
    """Ports of the service's machine that lead to a desktop; null where it has none for the purpose."""

    vnc_port: int | None
    chromium_port: int | None
    vlc_port: int | None
    server_port: int | None


class StartedEmulator(Ports):
    """A desktop that was lent."""

    emulator_id: str
    token: str


class Started(BaseModel):
    """The reply to a start."""

    message: str
    code: int
    data: StartedEmulator


class Said(BaseModel):
    """A sentence, and 0 or the status."""

    message: str
    code: int


class Emulator(Ports):
    """One desktop."""

    emulator_id: str
    token: str = Field(
        description="The token that was sent with the request; of others' desktops the name of its holder."
    )
    start_time: float = Field(description="Seconds since 1970.")
    duration_minutes: int
    container_id: str | None = Field(description="The VM.")


class EmulatorStatus(Ports):
    """How one desktop is."""

    emulator_id: str
    status: str
    token: str
    container_id: str | None
    duration_minutes: int


class TokenUse(BaseModel):
    """What a token uses."""

    current: int
    limit: int
    emulator_count: int


class TokenView(BaseModel):
    """What a token uses, in the service's status."""

    token: str
    current: int
    limit: int
    available: int


class ServiceStatus(BaseModel):
    """How busy the service is."""

    uptime_seconds: int
    cpu_percent: float | None
    memory_percent: float | None
    total_containers_for_image: int | None = Field(description="VMs of the pool; null if they are not known.")
    total_emulators: int
    tokens: list[TokenView]


class Pong(BaseModel):
    """Says that the service answers."""

    message: str


class Emulators(RootModel[list[Emulator]]):
    """Desktops."""


class EmulatorIds(RootModel[list[str]]):
    """The ids of desktops."""


class TokenUses(RootModel[dict[str, TokenUse]]):
    """What each token uses."""


class EmulatorProblem(BaseModel):
    """Why a request was not answered as it was meant."""

    message: str
    code: int
    status: str | None = None
