"""The images of a pool's VMs: hosts publish each image's name and what is known of it, for users about to submit a run.

An image's name changes whenever anything in the image does; "+" and the network policy of its guests may follow.
What is known of an image is text that this package does not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from vm_pool.pool import VMPool
from vm_pool.providers.base import NamesImage, Provider
from vm_pool.states import VMState


@dataclass(frozen=True, slots=True)
class PoolImage:
    """An image, as a pool's hosts have published it."""

    name: str
    """Empty where hosts do not know."""
    facts: str
    """What is known of the image; empty when nothing is."""
    hosts: tuple[str, ...]


def image_name(provider: Provider) -> str:
    """Returns the name of the image of a provider's VMs; empty when it does not know."""
    return provider.image_name() if isinstance(provider, NamesImage) else ""


def publish_image(pool: VMPool, host_id: str, name: str, facts: str) -> None:
    """Publishes which image a host's VMs are made from; forgotten when another process takes the host over.

    What is known of images that no host has any more is removed.

    Raises:
        PoolError: Redis did not store it.
    """
    pool.redis.call("HSET", pool.keys.images, host_id, name)
    if facts:
        pool.redis.call("HSET", pool.keys.facts, name, facts)
    known = pool.redis.call("HKEYS", pool.keys.facts)  # first: a host names its image before it says what is known
    if outdated := set(known) - set(pool.redis.call("HVALS", pool.keys.images)):
        pool.redis.call("HDEL", pool.keys.facts, *outdated)


def images(pool: VMPool) -> list[PoolImage]:
    """Returns the images of the VMs that a pool may lease.

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
