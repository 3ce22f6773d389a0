"""Classes of other packages that follow their contract, however they are written: each way of writing is tried for each member of
every contract. Each is taken, and each member then returns what it should when it is called as the contract says.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import make_dataclass
from types import MethodType
from typing import Any, Generic, TypeVar

import pytest

from rollout_tasks import registry
from rollout_tasks.agents.base import Agent
from rollout_tasks.environments.base import Environment
from tests.unit.test_extension_contracts import (  # noqa: F401 (two fixtures)
    PARTS,
    VALUES,
    attributes,
    load,
    methods,
    offered,
    parameters,
    right,
)
from vm_pool.providers.base import Provider
from vm_pool.providers.simulated import SimulatedProvider

Load = Callable[[str, object], object]
KINDS = {"environment": Environment, "agent": Agent, "provider": Provider}
each_kind = pytest.mark.parametrize(("kind", "contract"), KINDS.items(), ids=KINDS)
Extra = TypeVar("Extra")


def written(head: str) -> Any:
    """A function with these parameters."""
    namespace: dict[str, Any] = {}
    exec(f"def written({head}): pass", namespace)  # noqa: S102
    return namespace["written"]


def plain(*names: str) -> Any:
    return written(", ".join(names))


def decorated(function: Any) -> Any:
    return lambda *args, **kwargs: function(*args, **kwargs)


def wrapped(function: Any) -> Any:
    return functools.wraps(function)(decorated(function))


def with_session(*names: str) -> Any:
    """A function whose decorator supplies one argument more than callers give."""
    function = plain(*names, "session")

    @functools.wraps(function)
    def supplying(*args: Any, **kwargs: Any) -> Any:
        return function(*args, "session", **kwargs)

    return supplying


def with_session_and_signature(*names: str) -> Any:
    """As decorators do that copy the signature, too."""
    supplying = with_session(*names)
    supplying.__signature__ = inspect.signature(supplying.__wrapped__)
    return supplying


class Elsewhere:
    """A descriptor that stores what it makes in the instance, as caches do."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: type) -> Any:
        return instance.__dict__.setdefault("_elsewhere", {}).setdefault(self, MethodType(self.function, instance))


class Proxy(Elsewhere):
    """Claims to be a function, as some decorators' objects do."""

    __class__ = property(lambda self: type(self.function))  # type: ignore[assignment]


class Called:
    """Can be called, and is no descriptor."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def partial_method(function: Any) -> Any:
    return functools.partialmethod(function, "first")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "decorated": lambda *names: decorated(plain(*names)),
    "wrapped": lambda *names: wrapped(plain(*names)),
    "wrapped twice": lambda *names: wrapped(wrapped(plain(*names))),
    "given an argument by its decorator": with_session,
    "given an argument, the signature copied": with_session_and_signature,
    "any arguments": lambda first, *_: written(f"{first}, *args, **kwargs"),
    "more with defaults": lambda *names: plain(*names, "more=None", "most=3"),
    "by name with defaults": lambda *names: plain(*names, "*", "more=None"),
    "by position only": lambda *names: plain(*names, "/"),
    "all with defaults": lambda first, *names: plain(first, *(f"{name}=None" for name in names)),
    "cached": lambda *names: functools.lru_cache(plain(*names)),
}
"""Functions that take these arguments; the first is the instance or the class."""
MEMBERS: dict[str, Callable[..., Any]] = {
    "static method": lambda _, *names: staticmethod(plain(*names)),
    "static method that is wrapped": lambda _, *names: staticmethod(wrapped(plain(*names))),
    "object": lambda _, *names: Called(plain(*names)),
    "partial": lambda _, *names: functools.partial(plain("first", *names), "first"),
    "method of another object": lambda first, *names: MethodType(plain(first, *names), object()),
}
"""Members that serve on classes and instances alike."""
OF_INSTANCES: dict[str, Callable[..., Any]] = FUNCTIONS | {
    "partial method": lambda first, *names: partial_method(plain(first, "given", *names)),
    "partial method that is wrapped": lambda first, *names: partial_method(wrapped(plain(first, "given", *names))),
    "dispatched": lambda *names: functools.singledispatchmethod(plain(*names)),
    "cached property": lambda _, *names: functools.cached_property(lambda _self: plain(*names)),
    "descriptor that writes to the instance": lambda *names: Elsewhere(plain(*names)),
    "proxy of a function": lambda *names: Proxy(plain(*names)),
    "partial method of a descriptor": lambda first, *names: partial_method(Elsewhere(plain(first, "given", *names))),
}
OF_CLASSES: dict[str, Callable[..., Any]] = {
    **{f"class method: {way}": lambda *names, made=made: classmethod(made(*names)) for way, made in FUNCTIONS.items()},
    "partial class method": lambda first, *names: partial_method(classmethod(plain(first, "given", *names))),
    "dispatched class method": lambda *names: functools.singledispatchmethod(classmethod(plain(*names))),
}
NO_CONSTRUCTORS = ("cached", "cached property")
"""Not for `__init__`: options have no hash, and a cached property has no arguments."""


def body_of(contract: type) -> dict[str, Any]:
    return right(contract, *(PARTS if contract is Provider else ()))


def ways(name: str, member: Any) -> dict[str, Callable[..., Any]]:
    """How a member may be written."""
    if name == "__init__":
        return {way: make for way, make in OF_INSTANCES.items() if way not in NO_CONSTRUCTORS}
    found = OF_CLASSES | MEMBERS if isinstance(member, classmethod) else OF_INSTANCES | OF_CLASSES | MEMBERS
    return {way: make for way, make in found.items() if parameters(member) or not way.startswith("dispatched")}


OF_CLASS = {name for name in VALUES if name not in ("task_code", "attestation", "needs_reset")}
WAYS = [*OF_INSTANCES, *OF_CLASSES, *MEMBERS]


def works(kind: str, loaded: Any, contract: type, name: str) -> None:
    """Calls a member as the pipeline does."""
    made = loaded if kind == "provider" else loaded({})
    member = body_of(contract)[name]
    if name != "__init__":
        holder = type(made) if isinstance(member, classmethod) else made
        assert getattr(holder, name)(*parameters(member)) is None


@each_kind
@pytest.mark.parametrize("inherits", [False, True], ids=["alone", "inherits"])
@pytest.mark.parametrize("way", WAYS)
def test_each_member_may_be_written_in_each_way(
    load: Load,  # noqa: F811
    kind: str,
    contract: type,
    inherits: bool,
    way: str,
) -> None:
    body = body_of(contract)
    called = {name: one for name, one in body.items() if inspect.isfunction(one) or isinstance(one, classmethod)}
    spelt = {
        name: make("self", *parameters(member))
        for name, member in called.items()
        if (make := ways(name, member).get(way))
    }
    if not spelt:
        pytest.skip(f"{kind}s have nothing of the kind")

    loaded = load(kind, type("Right", (contract,) if inherits else (), body | spelt))

    for name in spelt:
        works(kind, loaded, contract, name)


class OfClass:
    """An attribute that the class computes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __get__(self, instance: object, owner: type) -> Any:
        return self.value


@each_kind
@pytest.mark.parametrize("inherits", [False, True], ids=["alone", "inherits"])
def test_attributes_may_be_computed(load: Load, kind: str, contract: type, inherits: bool) -> None:  # noqa: F811
    body, bases = body_of(contract), (contract,) if inherits else ()
    hints = {name: hint for part in (contract, *PARTS) for name, hint in attributes(part).items() if name in body}
    for_instances = {name: property(lambda _, name=name: VALUES[name]) for name in hints if name not in OF_CLASS}

    assert load(kind, type("Right", bases, body | {name: OfClass(VALUES[name]) for name in hints}))
    assert load(kind, type("Right", bases, body | for_instances))


@each_kind
def test_a_delegate_may_have_the_methods(load: Load, kind: str, contract: type) -> None:  # noqa: F811
    body = body_of(contract)
    whole = type("Whole", (), body)(object())
    delegate = {"__init__": plain("self", "options"), "__getattr__": lambda _, name: getattr(whole, name)}
    kept = {name: value for name, value in body.items() if name in VALUES or isinstance(value, classmethod)}

    loaded = load(kind, type("Right", (), kept | delegate))

    for name in methods(contract):
        works(kind, loaded, contract, name)


def alternatives(contract: type) -> dict[str, type]:
    """Whole classes."""
    body = body_of(contract)
    members = {name: value for name, value in body.items() if name != "__init__"}
    mixin = type("Mixin", (), members)
    plain_class = type("Plain", (), body)

    class OfSomething(plain_class, Generic[Extra]):  # type: ignore[valid-type, misc]
        """A generic base."""

    class Unfinished(plain_class, ABC):  # type: ignore[valid-type, misc]
        """A base that leaves more to be defined."""

        @abstractmethod
        def more(self) -> None:
            """To be defined."""

    def __init__(self: Any, options: object) -> None:  # noqa: N807
        self.options = options

    slots = {name: value for name, value in members.items() if name not in ("needs_reset", "task_code", "attestation")}

    def fill(self: Any, options: object) -> None:
        self.options, self.needs_reset, self.task_code, self.attestation = options, True, None, None

    slot_names = ("options", "needs_reset", "task_code", "attestation")
    return {
        "alone": plain_class,
        "a mixin before the contract": type("Right", (mixin, contract), {"__init__": __init__}),
        "a mixin alone": type("Right", (mixin,), {"__init__": __init__}),
        "inherited twice": type("Right", (type("Base", (plain_class, contract), {}),), {}),
        "a generic base": type("Right", (OfSomething,), {}),
        "a generic base and the contract": type("Right", (OfSomething, contract), {}),
        "an abstract base": type("Right", (Unfinished,), {"more": __init__}),
        "an abstract base and the contract": type("Right", (Unfinished, contract), {"more": __init__}),
        "slots": type("Right", (), slots | {"__init__": fill, "__slots__": slot_names}),
        "slots and the contract": type("Right", (contract,), body | {"__slots__": ("options",)}),
        "a dataclass": make_dataclass("Right", [("options", Any)], namespace=dict(members)),
        "a frozen dataclass": make_dataclass("Right", [("options", Any)], namespace=dict(members), frozen=True),
        "a dataclass with slots": make_dataclass("Right", [("options", Any)], namespace=dict(members), slots=True),
        "a dataclass and the contract": make_dataclass(
            "Right", [("options", Any)], bases=(contract,), namespace=dict(members)
        ),
        "new instead of init": type("Right", (), members | {"__new__": lambda cls, options: object.__new__(cls)}),  # noqa: ARG005
    }


@each_kind
@pytest.mark.parametrize("shape", list(alternatives(Agent)))
def test_a_class_may_be_made_in_each_way(load: Load, kind: str, contract: type, shape: str) -> None:  # noqa: F811
    loaded = load(kind, alternatives(contract)[shape])

    for name in methods(contract):
        works(kind, loaded, contract, name)


@pytest.mark.parametrize("name", ["simulated", "math", "py", "rag"])
def test_a_built_in_environment_may_be_inherited_from(load: Load, name: str) -> None:  # noqa: F811
    assert load("environment", type("Right", (registry.environment(name),), {"queue": "rollout.mine"}))


def test_a_built_in_agent_or_provider_may_be_inherited_from(load: Load) -> None:  # noqa: F811
    for name in registry.known_agents():
        if name != "broken":
            assert load("agent", type("Right", (registry.agent(name),), {}))
    assert load("provider", type("Right", (SimulatedProvider,), {"boot": with_session("self", "vm_id")}))


METRICS: dict[str, Callable[[], Any]] = {
    **{way: lambda make=make: make("a", "b", "c") for way, make in FUNCTIONS.items()},
    "partial": lambda: functools.partial(with_session("self", "a", "b", "c"), None),
    "object": lambda: Called(plain("a", "b", "c")),
    "method": lambda: MethodType(with_session("self", "a", "b", "c"), object()),
    "proxy of a function": lambda: CalledProxy(plain("a", "b", "c", "session")),
    "dispatched": lambda: functools.singledispatch(plain("a", "b", "c")),
    "class": lambda: type("Right", (), {"__init__": with_session("self", "a", "b", "c")}),
}


class CalledProxy:
    """Supplies an argument to the function that it claims to be."""

    __class__ = property(lambda self: type(self.__wrapped__))  # type: ignore[assignment]

    def __init__(self, function: Any) -> None:
        self.__wrapped__ = function

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__dict__")["__wrapped__"], name)

    def __call__(self, *args: Any) -> Any:
        return self.__wrapped__(*args, "session")


@pytest.mark.parametrize("way", METRICS)
def test_a_metric_may_be_written_in_each_way(load: Load, way: str) -> None:  # noqa: F811
    loaded: Any = load("metric", METRICS[way]())

    loaded("prediction", "answer", "item")
