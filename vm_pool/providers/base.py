"""The interface of a VM provider, its optional parts, and finding one by name."""

from __future__ import annotations

import json
import socket
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from vm_pool.contracts import check_class, check_instance, reason, returned
from vm_pool.errors import ProviderError
from vm_pool.states import Endpoint

GROUP = "vm_pool.providers"
CONNECT_SECONDS = 5.0
ATTEST = "attest"
"""The purpose of a connection that returns `alterations` as one line of JSON: ``{"altered": [sentence, ...]}``."""


class Provider(Protocol):
    """Boots, reverts and stops VMs of one kind. Constructed as ``Class(options)``; raises plain Python errors.

    A VM's id is ``<host>-<number>``. Calls for different VMs run in parallel. Every call must have its own timeout,
    since the caller cannot end a call that hangs. Everything that a call starts is tagged with the VM's id before it
    starts, so that `reap_leftovers` finds it even if this process is killed meanwhile.

    A provider may also implement `ReachesVMs`, `TakesFingerprints`, `Attests`, `ChecksMachine`, `NamesImage` and
    `ListsOptions`, each by having its member.
    """

    needs_reset: bool
    """Whether a VM must be reset between two holders."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Checks the options; raises `ValueError` with one sentence about a wrong one. Starts nothing."""

    @abstractmethod
    def boot(self, vm_id: str) -> Endpoint:
        """Starts a VM from its clean state; returns where it will answer."""

    @abstractmethod
    def check(self, vm_id: str) -> None:
        """Raises unless the VM is ready for use right now: a real probe, such as a screenshot. Changes nothing."""

    @abstractmethod
    def reset(self, vm_id: str) -> Endpoint:
        """Brings a running VM back to its clean state; returns where it will answer."""

    @abstractmethod
    def stop(self, vm_id: str) -> None:
        """Stops a VM and frees its resources, in whatever state it is, even when it is not running.

        May be called while `boot`, `check` or `reset` of the same VM is running, which then raises.
        """

    @abstractmethod
    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Ends what a killed predecessor of this host left running; returns the ids of those VMs.

        May also end leftovers of other hosts' VMs on this machine that no process uses any longer.

        Raises:
            VMsInUse: A living process uses VMs with these names; none was ended.
        """


@runtime_checkable
class ReachesVMs(Protocol):
    """A provider whose VMs cannot simply be reached at their endpoint's address and ports."""

    def connect(self, vm_id: str, purpose: str) -> socket.socket:
        """Returns a new TCP connection to the VM's port for a purpose: ``control``, ``chromium``, ``vnc``, ``vlc``."""


@runtime_checkable
class TakesFingerprints(Protocol):
    """A provider that can tell whether a VM is in its clean state."""

    def fingerprint(self, vm_id: str) -> Mapping[str, Sequence[str]]:
        """Returns words for each probe of a running VM (``processes``, ``files``, ...), in the order of checking.

        After a reset, a VM must have no word that no freshly booted VM has.
        """


@runtime_checkable
class Attests(Protocol):
    """A provider that sees from outside whether a VM's server is still the one from when the VM was found ready."""

    def alterations(self, vm_id: str) -> Sequence[str]:
        """Returns a sentence for each change of the server at the VM's control port since then; empty if unchanged."""


@runtime_checkable
class ChecksMachine(Protocol):
    """A provider that knows its requirements on this machine."""

    def check_available(self) -> None:
        """Raises `ProviderError` with one sentence: what is missing and what to do."""


@runtime_checkable
class NamesImage(Protocol):
    """A provider that knows the image of its VMs."""

    def image_name(self) -> str:
        """Returns letters, digits and ``-``; changes whenever anything in the image does. Empty when unknown.

        Where guests have a network, ``+`` and the policy follow.
        """


class ListsOptions(Protocol):
    """A provider that lists the names of its options, so that those of a run which it also has reach it."""

    option_names: ClassVar[Collection[str]]


_PARTS = (ReachesVMs, TakesFingerprints, Attests, ChecksMachine, NamesImage, ListsOptions)


def with_network(image: str, policy: str) -> str:
    """Returns an image's name with its guests' network policy."""
    return image if policy == "none" or not image else f"{image}+{policy}"


def without_network(name: str) -> tuple[str, str]:
    """Returns the image's own name, and its guests' network policy; empty for no network."""
    image, _plus, policy = name.partition("+")
    return image, policy


def check_available(provider: Provider) -> None:
    """Makes sure that the provider can run here, as far as it can tell before booting a VM.

    Raises:
        ProviderError: It cannot.
    """
    if isinstance(provider, ChecksMachine):
        provider.check_available()


def checked_endpoint(endpoint: Endpoint, provider: Provider, method: str) -> Endpoint:
    """Returns what `boot` or `reset` returned, if it is an endpoint.

    Raises:
        ContractBroken: It is something else.
    """
    return returned(endpoint, Endpoint, f"{type(provider).__name__}.{method}")


def purposes(provider: Provider, endpoint: Endpoint) -> list[str]:
    """Returns the purposes of connections to a VM: its ports, and `ATTEST` where its provider supports it.

    Args:
        provider: The VM's provider.
        endpoint: What `boot` or `reset` returned last.
    """
    return [*endpoint.ports, *([ATTEST] if endpoint.ports and isinstance(provider, Attests) else [])]


def connect(provider: Provider, vm_id: str, purpose: str, endpoint: Endpoint) -> socket.socket:
    """Opens a new connection to a VM, or to its provider's answer about it.

    Args:
        provider: The VM's provider.
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
    """Returns a connection that delivers one line of JSON."""
    near, far = socket.socketpair()
    with far:
        far.sendall(json.dumps(words).encode() + b"\n")
    return near


def provider_names() -> list[str]:
    """Returns the names of the installed providers."""
    return sorted(entry.name for entry in _installed())


def load_provider(name: str, options: Mapping[str, Any]) -> Provider:
    """Finds a provider and creates it.

    Args:
        name: Its name among the installed ones.
        options: The provider's own options.

    Raises:
        ProviderError: It is not installed, cannot be imported, breaks its contract, or does not accept the options.
    """
    found = _provider_class(name)
    try:
        made = found(options)
    except ImportError as error:
        raise ProviderError(f"VM provider {name!r} cannot be used here: {error}") from error
    except (TypeError, ValueError) as error:
        raise ProviderError(f"VM provider {name!r} does not accept its options: {_first_line(error)}") from error
    except Exception as error:
        why = f"{type(error).__name__}: {_first_line(error)}"
        raise ProviderError(f"VM provider {name!r} does not accept its options: {why}") from error
    try:
        check_instance(made, Provider)
    except Exception as error:
        raise ProviderError(f"VM provider {name!r} cannot be used: {reason(error)}") from error
    return cast(Provider, made)


def option_names(name: str) -> frozenset[str]:
    """Returns the options that a provider lists in its class's `option_names`; empty where it lists none.

    Raises:
        ProviderError: It is not installed, cannot be imported, or breaks its contract.
    """
    return frozenset(getattr(_provider_class(name), "option_names", ()))


def _provider_class(name: str) -> Any:
    found = [entry for entry in _installed() if entry.name == name]
    if not found:
        raise ProviderError(f"no VM provider is called {name!r}; installed: {', '.join(provider_names()) or 'none'}")
    try:
        loaded = found[0].load()
        check_class(loaded, Provider, *_PARTS)
    except ImportError as error:
        raise ProviderError(f"VM provider {name!r} cannot be used here: {error}") from error
    except (Exception, SystemExit) as error:
        raise ProviderError(f"VM provider {name!r} cannot be loaded from {found[0].value}: {reason(error)}") from error
    return loaded


def _installed() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


def _first_line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic's message does not fit one sentence
        first = errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
