"""Classes of other packages that break their contract: every member of every contract is removed, misspelt, replaced and given
a wrong signature. Each such class is refused in one sentence when it is loaded, and nothing else is raised.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, get_origin, get_type_hints

import pytest

from benchmark.errors import BenchmarkError
from benchmark.metrics import Metric, Score, metric
from rollout_tasks import registry
from rollout_tasks.agents.base import Agent
from rollout_tasks.environments.base import Environment
from rollout_tasks.errors import UserError
from vm_pool.errors import ProviderError
from vm_pool.providers import load_provider
from vm_pool.providers.base import (
    Attests,
    ChecksMachine,
    ListsOptions,
    NamesImage,
    Provider,
    ReachesVMs,
    TakesFingerprints,
    option_names,
)

PLACE = "made_extension:Broken"
PARTS = (ReachesVMs, TakesFingerprints, Attests, ChecksMachine, NamesImage, ListsOptions)
VALUES = {
    "needs_vm": False,
    "needs_desktop": False,
    "compares_answers": True,
    "scores_unfinished": False,
    "asks_model": False,
    "queue": "rollout.kitchen",
    "default_agent": "simulated",
    "task_code": None,
    "attestation": "attested",
    "needs_model": True,
    "needs_reset": True,
    "option_names": frozenset({"rack"}),
}
"""A right value of each attribute."""
DEFECTS = ("removed", "misspelt", "not callable or of a wrong kind", "too few arguments", "too many arguments", "async")


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package that offers one extension of each kind, all in the same place; its module."""
    info = tmp_path / "made-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made\nVersion: 1\n")
    groups = ("rollout_tasks.environments", "rollout_tasks.agents", "benchmark.metrics", "vm_pool.providers")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\nbroken = {PLACE}\n" for group in groups))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = ModuleType("made_extension")
    monkeypatch.setitem(sys.modules, "made_extension", module)
    registry._offered.cache_clear()
    yield module
    registry._offered.cache_clear()
    registry.load.cache_clear()


def found(kind: str) -> object:
    """Loads the offered extension of a kind by the loader of that kind."""
    registry.load.cache_clear()
    if kind == "provider":
        option_names("broken")
        return load_provider("broken", {})
    return {"environment": registry.environment, "agent": registry.agent, "metric": metric}[kind]("broken")


@pytest.fixture
def load(offered: ModuleType) -> Callable[[str, object], object]:
    """Loads something as an installed package's extension."""

    def loaded(kind: str, extension: object) -> object:
        offered.Broken = extension  # type: ignore[attr-defined]
        return found(kind)

    return loaded


def methods(contract: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(contract.__mro__):
        if base not in (object, Protocol, Generic):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value) or isinstance(value, classmethod)}


def attributes(contract: type) -> dict[str, Any]:
    return get_type_hints(contract)


def taking(*names: str, of_class: bool, is_async: bool = False) -> Any:
    """A method with these parameters."""
    first = "cls" if of_class else "self"
    namespace: dict[str, Any] = {}
    exec(f"{'async ' * is_async}def method({', '.join((first, *names))}): pass", namespace)  # noqa: S102
    return classmethod(namespace["method"]) if of_class else namespace["method"]


def parameters(method: Any) -> list[str]:
    return list(inspect.signature(getattr(method, "__func__", method)).parameters)[1:]


def right(*contracts: type) -> dict[str, Any]:
    """The body of a class that has all of the contracts' members."""
    body: dict[str, Any] = {}
    for contract in contracts:
        body |= {name: VALUES[name] for name in attributes(contract)}
        for name, method in methods(contract).items():
            body[name] = taking(*parameters(method), of_class=isinstance(method, classmethod))
    body["__init__"] = taking(*inspect.signature(contracts[0]).parameters, of_class=False)
    return body


def spoilt(body: dict[str, Any], name: str, defect: str) -> dict[str, Any] | None:
    """The body with one member spoilt; None where the defect does not apply to it."""
    member = body[name]
    is_method = inspect.isfunction(member) or isinstance(member, classmethod)
    if defect == "removed":
        return {key: value for key, value in body.items() if key != name}
    if defect == "misspelt":
        return {(f"{name}s" if key == name else key): value for key, value in body.items()}
    if defect == "not callable or of a wrong kind":
        return body | {name: 3}
    if not is_method:
        return None
    taken, of_class = parameters(member), isinstance(member, classmethod)
    if defect == "too few arguments":
        return body | {name: taking(*taken[:-1], of_class=of_class)} if taken else None
    if defect == "too many arguments":
        return body | {name: taking(*taken, "another", of_class=of_class)}
    return None if name == "__init__" else body | {name: taking(*taken, of_class=of_class, is_async=True)}


HAVE_DEFAULTS = {
    Environment: {
        *(
            "needs_desktop",
            "compares_answers",
            "scores_unfinished",
            "asks_model",
            "task_code",
            "attestation",
            "evaluate",
            "close",
            "__init__",
        ),
        *(
            "needs_vm_for",
            "check_item",
            "check_run",
            "needs",
            "unmet",
            "conformance",
            "bare_item",
            "snapshot",
            "prepare",
            "preload",
            "check_available",
        ),
    },
    Agent: {"__init__"},
    Provider: {"__init__"},
}
"""What a class that inherits from its contract need not have."""
NOT_ASKED_FOR = {
    Environment: {"task_code", "attestation"},
    Agent: set[str](),
    Provider: {name for part in PARTS for name in (*methods(part), *attributes(part))},
}
"""What no class need have."""

CASES = [
    pytest.param(kind, contract, bases, name, defect, id=f"{kind}-{'inherits' if bases else 'alone'}-{name}-{defect}")
    for kind, contract, parts in (("environment", Environment, ()), ("agent", Agent, ()), ("provider", Provider, PARTS))
    for bases in ((), (contract,))
    for name in right(contract, *parts)
    for defect in DEFECTS
    if spoilt(right(contract, *parts), name, defect) is not None
]


@pytest.mark.parametrize(("kind", "contract", "bases", "name", "defect"), CASES)
def test_every_breach_is_one_sentence_at_load(
    load: Callable[[str, object], object], kind: str, contract: type, bases: tuple[type, ...], name: str, defect: str
) -> None:
    body = spoilt(right(contract, *(PARTS if kind == "provider" else ())), name, defect)
    assert body is not None
    extension = type("Broken", bases, body)
    absent = defect in {"removed", "misspelt"}
    if absent and (name in NOT_ASKED_FOR[contract] or (bases and name in HAVE_DEFAULTS[contract])):
        assert load(kind, extension) is not None
        return

    with pytest.raises((UserError, ProviderError)) as told:
        load(kind, extension)

    sentence = str(told.value)
    assert "\n" not in sentence
    assert kind in sentence
    assert "'broken'" in sentence
    assert name in sentence
    if get_origin(attributes(contract).get(name, ClassVar[int])) is ClassVar or not absent:
        assert PLACE in sentence
    if defect == "misspelt" and name != "__init__" and PLACE in sentence:
        assert f"{name} (it has {name}s)" in sentence


@pytest.mark.parametrize(
    ("kind", "contract"),
    [("environment", Environment), ("agent", Agent), ("provider", Provider)],
    ids=lambda one: str(one),
)
@pytest.mark.parametrize("inherits", [False, True])
def test_a_class_that_has_everything_is_taken(
    load: Callable[[str, object], object], kind: str, contract: type, inherits: bool
) -> None:
    parts = PARTS if kind == "provider" else ()

    assert load(kind, type("Right", (contract,) if inherits else (), right(contract, *parts))) is not None


@pytest.mark.parametrize("kind", ["environment", "agent", "provider"])
@pytest.mark.parametrize(
    "extension",
    [3, None, "text", len, lambda context: context, ModuleType("made")],
    ids=["number", "None", "text", "function", "lambda", "module"],
)
def test_what_is_no_class_is_refused(load: Callable[[str, object], object], kind: str, extension: object) -> None:
    with pytest.raises(
        (UserError, ProviderError), match=rf"{kind} 'broken' cannot be loaded from {PLACE}: it is .*, not a class"
    ):
        load(kind, extension)


def test_one_sentence_says_all_that_is_wrong(load: Callable[[str, object], object]) -> None:
    class Kitchen(Environment):
        needs_vm = "no"
        queue: ClassVar[str] = "rollout.light"

        def rest(self, item):  # type: ignore[no-untyped-def]
            """A misspelt `reset`."""

        def execute(self):  # type: ignore[no-untyped-def]
            """Forgets the call."""

        def check_item(self, config, item):  # type: ignore[no-untyped-def]
            """Forgets to be a class method."""

    with pytest.raises(UserError) as told:
        load("environment", Kitchen)

    assert str(told.value) == (
        f"environment 'broken' cannot be loaded from {PLACE}: the class lacks default_agent, instructions, tools,"
        " reset (it has rest); needs_vm must be True or False, got 'no'; execute must take (call), but takes ();"
        " check_item must take (config, item) as a class method, but takes (self, config, item)"
    )


def test_an_empty_queue_is_refused(load: Callable[[str, object], object]) -> None:
    with pytest.raises(UserError) as told:
        load("environment", type("KitchenEnvironment", (), right(Environment) | {"queue": ""}))

    assert str(told.value) == f"environment 'broken' cannot be loaded from {PLACE}: queue must not be empty"


def test_option_names_are_told_in_words(load: Callable[[str, object], object]) -> None:
    with pytest.raises(ProviderError, match=r"option_names must be a list or set of texts, got 'rack'$"):
        load("provider", type("Rack", (), right(Provider) | {"option_names": "rack"}))


def test_a_decorator_that_takes_too_little_is_refused(load: Callable[[str, object], object]) -> None:
    """What it calls takes as many arguments as the contract asks for, but callers never reach it."""

    @functools.wraps(taking("vm_id", of_class=False))
    def boot(self: object) -> None:
        """Forgets the VM."""

    with pytest.raises(ProviderError, match=r"boot must take \(vm_id\), but takes \(\)$"):
        load("provider", type("Rack", (), right(Provider) | {"boot": boot}))


def test_a_delegate_needs_what_is_asked_of_its_class(load: Callable[[str, object], object]) -> None:
    """`__getattr__` finds methods for instances only."""
    body = {"__init__": taking("context", of_class=False), "__getattr__": taking("name", of_class=False)}

    with pytest.raises(UserError) as told:
        load("environment", type("Delegate", (), body))

    assert str(told.value) == (
        f"environment 'broken' cannot be loaded from {PLACE}: the class lacks needs_vm, queue, default_agent; it lacks"
        " needs_desktop, compares_answers, scores_unfinished, asks_model, needs_vm_for, check_item, check_run, needs, unmet,"
        " conformance, bare_item, snapshot, prepare, preload,"
        " check_available, which it can inherit from rollout_tasks.environments.base.Environment"
    )


def test_a_class_without_anything_is_told_what_to_inherit_from(load: Callable[[str, object], object]) -> None:
    with pytest.raises(UserError) as told:
        load("environment", type("KitchenEnvironment", (), {}))

    assert str(told.value) == (
        f"environment 'broken' cannot be loaded from {PLACE}: the class lacks needs_vm, queue, default_agent, instructions,"
        " tools, reset, execute; it lacks needs_desktop, compares_answers, scores_unfinished, asks_model, evaluate, close,"
        " needs_vm_for, check_item, check_run, needs,"
        " unmet, conformance, bare_item, snapshot, prepare, preload, check_available, which it can inherit from"
        " rollout_tasks.environments.base.Environment; __init__ must take (context), but takes ()"
    )


@pytest.mark.parametrize(
    ("extension", "says"),
    [
        (3, "must be callable, got int"),
        (lambda prediction, answer: Score(1.0), "must take (prediction, answer, item), but takes (prediction, answer)"),  # noqa: ARG005
        (lambda a, b, c, d: Score(1.0), "must take (prediction, answer, item), but takes (a, b, c, d)"),  # noqa: ARG005
        (lambda a, b, *, item: Score(1.0), "must take (prediction, answer, item), but takes (a, b, *, item)"),  # noqa: ARG005
    ],
)
def test_a_metric_that_cannot_be_called_is_refused(
    load: Callable[[str, object], object], extension: Any, says: str
) -> None:
    assert list(inspect.signature(Metric.__call__).parameters)[1:] == ["prediction", "answer", "item"]

    with pytest.raises(BenchmarkError) as told:
        load("metric", extension)

    assert str(told.value) == f"metric 'broken' cannot be used: {PLACE} {says}"
    assert load("metric", lambda *anything: Score(1.0))  # noqa: ARG005


@pytest.mark.parametrize("kind", ["environment", "agent", "metric", "provider"])
@pytest.mark.parametrize(
    "source",
    ["raise SystemExit(3)", "1 / 0", "def (", "raise KeyError('x')", "import no_such_package_here", "", "x = ("],
)
@pytest.mark.usefixtures("offered")
def test_a_module_that_cannot_be_imported_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str
) -> None:
    monkeypatch.delitem(sys.modules, "made_extension")
    (tmp_path / "made_extension.py").write_text(source)

    with pytest.raises((UserError, BenchmarkError, ProviderError), match=f"{kind} 'broken'") as told:
        found(kind)
    assert "\n" not in str(told.value)
    sys.modules.pop("made_extension", None)


def made_with(error: Exception) -> type:
    def __init__(self: object, options: object) -> None:  # noqa: N807
        raise error

    return type("Broken", (), right(Provider) | {"__init__": __init__})


@pytest.mark.parametrize(
    "error", [KeyError("ports"), OSError("no disk"), AttributeError("no"), ValueError("rack is missing")]
)
def test_a_provider_that_raises_when_it_is_made_is_one_sentence(
    load: Callable[[str, object], object], error: Exception
) -> None:
    with pytest.raises(
        ProviderError, match=r"VM provider 'broken' does not accept its options: .*(ports|no disk|no|rack)"
    ):
        load("provider", made_with(error))
