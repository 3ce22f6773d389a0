"""What a pool's VMs are made from: hosts say it, and what is known of the image, for whoever is about to submit a run.

An image goes by a name that changes whenever anything in it does; after it may come, with a "+" between, where its guests may go.
What is known of an image is text that this package does not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from vm_pool.pool import VMPool
from vm_pool.providers.base import NamesImage, Provider
from vm_pool.states import VMState


@dataclass(frozen=True, slots=True)
class PoolImage:
    """An image, as hosts of a pool have told."""

    name: str
    """Empty where hosts cannot tell."""
    facts: str
    """What is known of it; empty when nothing is."""
    hosts: tuple[str, ...]


def image_name(provider: Provider) -> str:
    """What a provider's VMs are made from; empty where it cannot tell."""
    return provider.image_name() if isinstance(provider, NamesImage) else ""


def tell_image(pool: VMPool, host_id: str, name: str, facts: str) -> None:
    """Says what a host's VMs are made from; forgotten when another process takes the host over.

    Raises:
        PoolError: Redis did not take it.
    """
    if facts:
        pool.redis.call("HSET", pool.keys.facts, name, facts)
    pool.redis.call("HSET", pool.keys.images, host_id, name)


def images(pool: VMPool) -> list[PoolImage]:
    """What the VMs that a pool may lend are made from.

    Raises:
        PoolError: Redis did not answer.
    """
    hosts = sorted({vm.host for vm in pool.status().vms if vm.host and vm.state is not VMState.STOPPED})
    if not hosts:
        return []
    told = pool.redis.call("HMGET", pool.keys.images, *hosts)
    of_image: dict[str, list[str]] = {}
    for host, name in zip(hosts, told, strict=True):
        of_image.setdefault(name or "", []).append(host)
    facts = pool.redis.call("HMGET", pool.keys.facts, *of_image)
    return [
        PoolImage(name, known or "", tuple(whose)) for (name, whose), known in zip(of_image.items(), facts, strict=True)
    ]
