"""Checks before enqueuing whether items' scores can be relied on in the VMs that the run would use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.items import Item
from desktop_image import kept_facts
from desktop_image.conformance.facts import Facts, FactsUnreadable, unpacked
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Conformance
from rollout_tasks.errors import UserError

if TYPE_CHECKING:
    import redis


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of comparing items with the images of the VMs that they would run in."""

    found: Sequence[Conformance] = ()
    """One for each compared item."""
    unknown: str = ""
    """Names the VMs about which nothing is known."""
    images: Sequence[str] = ()
    """The images of those VMs, and where they are, for the report."""

    @property
    def doubts(self) -> list[Conformance]:
        """The items whose score cannot be relied on."""
        return [one for one in self.found if one.verdict != "faithful"]


def check(config: RunConfig, items: Sequence[Item], client: redis.Redis | None) -> Checked:
    """Compares items with what is known about the VMs that the run would use.

    Args:
        config: The run's configuration.
        items: The run's items.
        client: The pool's Redis; None when the run starts its VMs here.

    Raises:
        UserError: The provider does not accept its options.
        PoolError: Redis did not answer.
    """
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(registry.environment_name(item, config), []).append(item)
    facts, unknown, images = _at_hand(config, client)
    if not facts:
        return Checked(unknown=unknown, images=images)
    found: list[Conformance] = []
    for name, group in groups.items():
        with registry.calling(name, "conformance"):
            found += registry.environment(name).conformance(config, group, facts)
    return Checked(found, unknown, images)


def _at_hand(config: RunConfig, client: redis.Redis | None) -> tuple[list[Facts], str, list[str]]:
    """Returns the images' known facts, a sentence part naming VMs without any, and the names of all images."""
    from vm_pool.images import images  # here, because their package imports Redis's client
    from vm_pool.pool import VMPool

    if client is None or not config.vm.use_pool:
        image_here = _image_here(config)
        named = [f"{image_here or 'an unnamed image'} (provider {config.vm.provider_name})"]
        facts = _read(image_here, "")
        return ([facts], "", named) if facts else ([], f"VMs of the provider {config.vm.provider_name}", named)
    known: list[Facts] = []
    unknown: list[str] = []
    named = []
    for image in images(VMPool(client, config.vm.pool)):
        named.append(f"{image.name or 'an unnamed image'} (hosts {', '.join(image.hosts)})")
        if facts := _read(image.name, image.facts):
            known.append(facts)
        else:
            unknown += image.hosts
    return known, f"the VMs of {', '.join(unknown[:3])}" if unknown else "", named


def _read(image: str, told: str) -> Facts | None:
    """Returns an image's facts as its host reported them, else those stored on this machine; None if there are none."""
    from vm_pool.providers.base import without_network  # here, as in _at_hand

    _image, network = without_network(image)
    for text in (told, kept_facts(image)):
        with suppress(FactsUnreadable):  # missing, or written by another version
            facts = unpacked(text)
            return facts.with_networks(network.split(",")) if network else facts
    return None


def _image_here(config: RunConfig) -> str:
    from rollout_tasks.vm_options import open_provider, provider_options  # here, as in _at_hand
    from vm_pool.errors import ProviderError
    from vm_pool.images import image_name

    try:
        return image_name(open_provider(config.vm.provider_name, provider_options(config)))
    except ProviderError as error:
        raise UserError(f"--provider-name: {error}") from error
