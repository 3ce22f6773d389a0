"""How far the scores of OSWorld's tasks can be relied on in VMs of an image."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmark.items import Item
from desktop_image import GuestBuildError, facts_of_image
from desktop_image.conformance.facts import Facts, FactsUnreadable, packed, unpacked
from desktop_image.conformance.probe import Guest, ProbeError, look
from desktop_image.conformance.touches import touches_of
from desktop_image.conformance.verdicts import verdict_of
from rollout_tasks.environments.base import Conformance
from rollout_tasks.environments.osworld.desktop_env_import import OCR_METRIC, has_ocr, is_installed
from rollout_tasks.environments.osworld.metric_options import unread_options
from rollout_tasks.environments.osworld.task import metrics_of
from rollout_tasks.errors import UserError
from rollout_tasks.vm_options import open_provider
from vm_pool.errors import ProviderError
from vm_pool.gate_relay import relayed
from vm_pool.images import image_name
from vm_pool.providers import Provider, check_available
from vm_pool.unpooled import unpooled_vm


def conformance(items: Iterable[Item], images: Sequence[Facts]) -> list[Conformance]:
    """Compares tasks with images: a task is faithful only if it is faithful in all of them.

    Args:
        items: Tasks of OSWorld.
        images: What is known of each image that a task's VM may be made from.
    """
    return [_compared(item, images) for item in items]


def _compared(item: Item, images: Sequence[Facts]) -> Conformance:
    evaluator = item.metadata.get("evaluator") or {}
    touches = touches_of({**item.metadata, **item.env_config, "instruction": item.question})
    lacking = tuple(_lacking(evaluator))
    ignored = tuple(unread_options(evaluator))
    for facts in images:
        verdict = verdict_of(touches, facts)
        if verdict.name == "needs" or (verdict.reasons and not lacking):
            return Conformance(item, verdict.name, (*verdict.reasons, *lacking, *ignored))
    if lacking:
        return Conformance(item, "needs", (*lacking, *ignored))
    return Conformance(item, "unfaithful", ignored) if ignored else Conformance(item, "faithful")


def _lacking(evaluator: Mapping[str, Any]) -> Iterator[str]:
    """Yields what the evaluator needs and a worker installed as this machine lacks; nothing without desktop-env here."""
    if evaluator and OCR_METRIC in metrics_of(evaluator) and is_installed() and not has_ocr():
        yield "the Python package easyocr on workers (evaluator.func)"


def image_facts(provider_name: str, options: Mapping[str, Any], progress: Callable[[str], None]) -> Facts:
    """Returns what is known of the image of a provider's VMs; the first time, boots one, inspects it and stops it.

    Args:
        provider_name: Where VMs come from.
        options: The provider's options.
        progress: Called with a sentence now and then.

    Raises:
        UserError: The provider has no VM here, or it does not answer.
    """
    try:
        provider = open_provider(provider_name, dict(options))
        check_available(provider)
        return unpacked(facts_of_image(image_name(provider), lambda: _looked_up(provider, progress), progress))
    except (ProviderError, ProbeError, FactsUnreadable, GuestBuildError) as error:
        raise UserError(str(error)) from error


def _looked_up(provider: Provider, progress: Callable[[str], None]) -> str:
    progress("Booting a VM of the image")
    with ExitStack() as stack:
        try:
            vm = stack.enter_context(unpooled_vm(provider, f"conformance-{os.getpid()}-0"))
        except Exception as error:  # providers raise what they like
            said = " ".join(str(error).split()) or type(error).__name__
            raise ProviderError(f"the VM does not start: {said}") from error
        there = stack.enter_context(relayed(vm.endpoint))
        return packed(look(Guest(f"http://{there.address}:{there.ports['control']}"), progress))
