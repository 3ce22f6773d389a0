"""The contract of a provider, what it may offer beyond it, and how one is found by name."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, cast, runtime_checkable

from vm_pool.errors import ProviderError
from vm_pool.states import Endpoint

GROUP = "vm_pool.providers"
CONNECT_SECONDS = 5.0
ATTEST = "attest"
"""The purpose of a connection over which the provider says `alterations`: one line of JSON, ``{"altered": [sentence, ...]}``."""


class Provider(Protocol):
    """Boots, reverts and stops VMs of one kind. Constructed as ``Class(options)``; raises plain Python errors.

    A VM's id is ``<host>-<number>``. Calls for different VMs come in parallel. Every call gives up by itself after a
    time that suits the provider: nothing above it can end a call that hangs. Whatever a call starts is tagged with the
    VM's id before it starts, so that `reap_leftovers` finds it even if this process is killed on the way.

    A provider may also be one of `ReachesVMs`, `TakesFingerprints`, `Attests`, `ChecksMachine` and `NamesImage`, each by having its
    method.
    """

    needs_reset: bool
    """Whether a VM must be reset between two holders."""

    def boot(self, vm_id: str) -> Endpoint:
        """Starts a VM from its clean state; returns where it will answer."""

    def check(self, vm_id: str) -> None:
        """Raises unless the VM is ready for use right now: a real probe, as a screenshot is. Changes nothing."""

    def reset(self, vm_id: str) -> Endpoint:
        """Brings a running VM back to its clean state; returns where it will answer."""

    def stop(self, vm_id: str) -> None:
        """Ends a VM and frees what it holds, in whatever state it is, or not running at all.

        May come while `boot`, `check` or `reset` of the same VM is running, which then raises.
        """

    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Ends what a killed predecessor of this host left running; returns the ids of those VMs.

        May also end what is left of other hosts' VMs on this machine, where it can see that no process uses them any more.

        Raises:
            VMsInUse: A living process uses VMs of these names; none was ended.
        """


@runtime_checkable
class ReachesVMs(Protocol):
    """A provider whose VMs are not simply reached at their endpoint's address and ports."""

    def connect(self, vm_id: str, purpose: str) -> socket.socket:
        """A fresh TCP connection to the VM's port for a purpose: ``control``, ``chromium``, ``vnc``, ``vlc``."""


@runtime_checkable
class TakesFingerprints(Protocol):
    """A provider that can tell a VM in its clean state from one that is not."""

    def fingerprint(self, vm_id: str) -> Mapping[str, Sequence[str]]:
        """What a running VM is like now, as words for each probe (``processes``, ``files``, ...), in the order to look at them.

        A VM that was reset must have no word that no freshly booted one has.
        """


@runtime_checkable
class Attests(Protocol):
    """A provider that sees from outside whether what answers in a VM is what answered when the VM was found ready."""

    def alterations(self, vm_id: str) -> Sequence[str]:
        """What of the server at the VM's control port is not as it was then, in sentences; none where all is."""


@runtime_checkable
class ChecksMachine(Protocol):
    """A provider that knows what it needs of the machine it runs on."""

    def check_available(self) -> None:
        """Raises `ProviderError`, one sentence saying what is missing and what to do."""


@runtime_checkable
class NamesImage(Protocol):
    """A provider that knows what its VMs are made from."""

    def image_name(self) -> str:
        """Letters, digits and ``-``; another one whenever anything in the image changes. Empty where that cannot be told.

        Where guests have a network, ``+`` and the policy come after it.
        """


def with_network(image: str, policy: str) -> str:
    """An image's name with where its guests may go."""
    return image if policy == "none" or not image else f"{image}+{policy}"


def without_network(name: str) -> tuple[str, str]:
    """The image's own name, and where its guests may go; empty for nowhere."""
    image, _plus, policy = name.partition("+")
    return image, policy


def check_available(provider: Provider) -> None:
    """Makes sure that the provider can run here, as far as it can tell before a VM boots.

    Raises:
        ProviderError: It cannot.
    """
    if isinstance(provider, ChecksMachine):
        provider.check_available()


def purposes(provider: Provider, endpoint: Endpoint) -> list[str]:
    """What there can be connections to a VM for: its ports, and `ATTEST` where its provider can tell.

    Args:
        provider: The VM's.
        endpoint: What `boot` or `reset` returned last.
    """
    return [*endpoint.ports, *([ATTEST] if endpoint.ports and isinstance(provider, Attests) else [])]


def connect(provider: Provider, vm_id: str, purpose: str, endpoint: Endpoint) -> socket.socket:
    """A fresh connection to a VM, or to what its provider says of it.

    Args:
        provider: The VM's.
        vm_id: The VM.
        purpose: One of `purposes`.
        endpoint: What `boot` or `reset` returned last.

    Raises:
        OSError: Nothing answers there.
    """
    if purpose == ATTEST and isinstance(provider, Attests):
        return _saying({"altered": list(provider.alterations(vm_id))})
    if isinstance(provider, ReachesVMs):
        return provider.connect(vm_id, purpose)
    return socket.create_connection((endpoint.address, endpoint.ports[purpose]), timeout=CONNECT_SECONDS)


def _saying(words: Mapping[str, Any]) -> socket.socket:
    """A connection over which one line of JSON comes."""
    near, far = socket.socketpair()
    with far:
        far.sendall(json.dumps(words).encode() + b"\n")
    return near


def provider_names() -> list[str]:
    """The providers that are installed."""
    return sorted(entry.name for entry in _installed())


def load_provider(name: str, options: Mapping[str, Any]) -> Provider:
    """Finds a provider and makes one.

    Args:
        name: Its name among the installed ones.
        options: What it understands itself.

    Raises:
        ProviderError: There is none of this name, it cannot be imported, or it does not accept the options.
    """
    found = _provider_class(name)
    try:
        return cast(Provider, found(options))
    except ImportError as error:
        raise ProviderError(f"VM provider {name!r} cannot be used here: {error}") from error
    except (TypeError, ValueError) as error:
        raise ProviderError(f"VM provider {name!r} does not accept its options: {_first_line(error)}") from error


def option_names(name: str) -> frozenset[str]:
    """The options that a provider says it has, in its class's `option_names`; empty where it does not say.

    Raises:
        ProviderError: There is none of this name, or it cannot be imported.
    """
    return frozenset(getattr(_provider_class(name), "option_names", ()))


def _provider_class(name: str) -> Any:
    found = [entry for entry in _installed() if entry.name == name]
    if not found:
        raise ProviderError(f"no VM provider is called {name!r}; installed: {', '.join(provider_names()) or 'none'}")
    try:
        return found[0].load()
    except ImportError as error:
        raise ProviderError(f"VM provider {name!r} cannot be used here: {error}") from error


def _installed() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


def _first_line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic says more than fits one sentence
        first = errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
