"""Checks classes of other packages against the contract they are to follow, a `Protocol`, when they are loaded.

What a contract leaves abstract, a class must define; for the rest, inheriting from the contract is enough. An attribute that
is not a `ClassVar` belongs to instances: a class may lack it. Nothing is asked of methods that come from descriptors other than
Python's own methods, or from `__getattr__`.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partialmethod
from types import FunctionType, NoneType, UnionType
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

_Returned = TypeVar("_Returned")
_MISSING = object()
_SHOWN_CHARACTERS = 60
_TYPE_NAMES: Mapping[Any, str] = {bool: "True or False", str: "text", numbers.Real: "a number", NoneType: "None"}


class ContractBroken(TypeError):
    """A class, or what one of its methods returned, breaks its contract; the message says all that is wrong."""


def check_class(found: object, contract: type, *parts: type) -> None:
    """Checks a class against its contract, without making an instance of it.

    Args:
        found: What an entry point leads to.
        contract: The contract.
        parts: Contracts that a class follows if it has anything of them.

    Raises:
        ContractBroken: The class breaks one, in ways that the message lists.
    """
    if not isinstance(found, type):
        raise ContractBroken(f"it is {_shown(found)}, not a class")
    missing = [name for name in _required(contract) if _lacks(found, name, contract) or _is_abstract(found, name)]
    missing += sorted(getattr(found, "__abstractmethods__", frozenset()) - set(missing))
    obligatory_members = [_named(name, found, contract) for name in missing if not _has_default(contract, name)]
    inheritable = [_named(name, found, contract) for name in missing if _has_default(contract, name)]
    wrong = [f"the class lacks {', '.join(obligatory_members)}"] if obligatory_members else []
    if inheritable:
        wrong.append(
            f"it lacks {', '.join(inheritable)}, which it can inherit from {contract.__module__}.{contract.__name__}"
        )
    wrong += _constructor_clauses(found, contract)
    wrong += [clause for one in (contract, *parts) for clause in _wrong(found, one)]
    if wrong:
        raise ContractBroken("; ".join(wrong))


def check_instance(made: object, contract: type) -> None:
    """Checks the attributes that every instance has, of one that was just made.

    Raises:
        ContractBroken: One is missing, or of the wrong kind.
    """
    for name, hint in get_type_hints(contract).items():
        value = getattr(made, name, _MISSING)
        if value is _MISSING and not hasattr(contract, name):
            raise ContractBroken(f"{type(made).__name__} lacks {name}")
        if value is not _MISSING and not fits(value, hint):
            raise ContractBroken(f"{type(made).__name__}.{name} must be {_words(hint)}, got {_shown(value)}")


def returned(value: _Returned, wanted: Any, method: str) -> _Returned:
    """Returns what a method returned, if it is of the right kind.

    Args:
        value: What it returned.
        wanted: The kind: a class, or another annotation that contracts use.
        method: The method, as in ``KitchenEnvironment.reset``.

    Raises:
        ContractBroken: It is of another kind.
    """
    if fits(value, wanted):
        return value
    raise ContractBroken(f"{method} returned {_shown(value)} instead of {_words(wanted)}")


def reason(error: BaseException) -> str:
    """Returns why a class could not be loaded, to put after its name: one line."""
    said = " ".join(str(error).split())
    return (
        said
        if said and isinstance(error, ContractBroken | ImportError)
        else f"{type(error).__name__}: {said}".rstrip(": ")
    )


def fits(value: object, hint: Any) -> bool:
    """Returns whether a value is of the kind that an annotation names, of those that contracts use."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is ClassVar:
        return fits(value, arguments[0])
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, origin) and all(
            fits(name, arguments[0]) and fits(one, arguments[1]) for name, one in value.items()
        )
    if origin is not None and issubclass(origin, Collection):
        return (
            isinstance(value, origin) and not isinstance(value, str) and all(fits(one, arguments[0]) for one in value)
        )
    return isinstance(value, hint)


def _required(contract: type) -> Iterator[str]:
    """Yields the names that a class must have: class attributes, unless instances may have them instead, and methods."""
    for name, hint in get_type_hints(contract).items():
        if get_origin(hint) is ClassVar:
            yield name
    yield from _methods(contract)


def _methods(contract: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(contract.__mro__):
        if base not in (object, Protocol, Generic):
            found |= {
                name: value
                for name, value in vars(base).items()
                if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, classmethod))
            }
    return found


def _wrong(found: type, contract: type) -> Iterator[str]:
    """Yields a clause about each member that the class has, but not as the contract asks for."""
    for name, hint in get_type_hints(contract).items():
        of_instances = get_origin(hint) is not ClassVar
        static = _static(found, name)
        if static is _MISSING or (of_instances and hasattr(static, "__get__")):
            continue
        value = getattr(found, name, static)
        if not fits(value, hint):
            yield f"{name} must be {_words(hint)}, got {_shown(value)}"
        elif value == "":
            yield f"{name} must not be empty"
    for name, method in _methods(contract).items():
        static = _static(found, name)
        if static is not _MISSING and not _is_abstract(found, name) and (clause := _method_clause(found, name, method)):
            yield clause


def _constructor_clauses(found: type, contract: type) -> Iterator[str]:
    wanted = list(inspect.signature(contract).parameters)
    constructor = _static(found, "__init__")
    if _hides_signature(constructor) or not (constructor is object.__init__ or _binds_simply(constructor)):
        return
    if clause := _misfit(found, wanted):
        yield f"__init__ must take ({', '.join(wanted)}), {clause}"


def _method_clause(found: type, name: str, wanted_method: Any) -> str:
    """Returns what is wrong with a method; empty when nothing is."""
    static = _static(found, name)
    of_class = isinstance(wanted_method, classmethod)
    wanted = list(inspect.signature(getattr(wanted_method, "__func__", wanted_method)).parameters)[1:]
    bound = static
    if hasattr(type(static), "__get__") and not isinstance(static, property):
        if not _binds_simply(static):  # only its author knows what it gives to a real class or instance
            return ""
        bound = static.__get__(None if of_class else object(), found)
    if not callable(bound):
        return f"{name} must be a method, got {_shown(static)}"
    if inspect.iscoroutinefunction(bound) or inspect.isasyncgenfunction(bound):
        return f"{name} must be a plain method, not an async one"
    if clause := _misfit(bound, wanted):
        forgotten = of_class and type(static) is FunctionType and len(_signature(static).parameters) == len(wanted) + 1
        kind = " as a class method" if forgotten else ""
        return f"{name} must take ({', '.join(wanted)}){kind}, {clause}"
    return ""


def _misfit(called: Any, wanted: Sequence[str]) -> str:
    """Returns what something takes instead, if it cannot be called with so many arguments by position; else nothing."""
    if _hides_signature(called):
        return ""
    try:
        signature = _signature(called)
    except ValueError:  # of a built-in, which nobody can look into
        return ""
    except TypeError:
        return "but cannot be called"
    try:
        signature.bind(*wanted)
    except TypeError:
        return f"but takes ({', '.join(_parameter(one) for one in signature.parameters.values())})"
    return ""


def _signature(called: Any) -> inspect.Signature:
    """Returns a signature: of a decorated function, what the decorator takes, which may supply arguments itself."""
    return inspect.signature(called, follow_wrapped=False)


def _hides_signature(called: Any) -> bool:
    """Returns whether its decorator has copied the signature of what it calls, and so hides its own."""
    return hasattr(called, "__wrapped__") and hasattr(called, "__signature__")


def _binds_simply(member: Any) -> bool:
    """Returns whether it is of Python's own kinds of methods, which need no real instance, and run no code, to be bound."""
    kind = type(member)  # `isinstance` believes objects that claim to be of another class
    if issubclass(kind, classmethod | staticmethod):
        return _binds_simply(member.__func__)
    if issubclass(kind, partialmethod):
        return _binds_simply(member.func)
    return kind is FunctionType or not hasattr(kind, "__get__")


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    default = "" if parameter.default is parameter.empty else "=..."
    by_name = " by name" if parameter.kind is parameter.KEYWORD_ONLY else ""
    return f"{stars}{parameter.name}{default}{by_name}"


def _static(found: type, name: str) -> Any:
    """Returns a class's member without running any code of it; `_MISSING` if there is none."""
    return inspect.getattr_static(found, name, _MISSING)


def _lacks(found: type, name: str, contract: type) -> bool:
    """Returns whether a class lacks a member. One with `__getattr__` may find methods of instances when they are called."""
    of_instances = inspect.isfunction(_static(contract, name))
    return _static(found, name) is _MISSING and not (of_instances and _static(found, "__getattr__") is not _MISSING)


def _is_abstract(found: type, name: str) -> bool:
    return bool(getattr(_static(found, name), "__isabstractmethod__", False))


def _has_default(contract: type, name: str) -> bool:
    return _static(contract, name) is not _MISSING and not _is_abstract(contract, name)


def _named(name: str, found: type, contract: type) -> str:
    """Returns a missing member's name, with that of a member of the class which may be meant instead."""
    further_members = [
        one
        for base in found.__mro__[:-1]
        for one in vars(base)
        if not one.startswith("_") and not hasattr(contract, one)
    ]
    close = get_close_matches(name, further_members, n=1, cutoff=0.75)
    return f"{name} (it has {close[0]})" if close else name


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is ClassVar:
        return _words(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_words, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is not None:
        each = ["texts" if one is str else f"{getattr(one, '__name__', one)} objects" for one in arguments]
        if issubclass(origin, Mapping):
            return f"a mapping of {' to '.join(each)}"
        return f"a list of {each[0]}" if issubclass(origin, Sequence) else f"a list or set of {each[0]}"
    return _TYPE_NAMES.get(hint) or f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"


def _shown(value: object) -> str:
    """Returns a plain value, else what kind of thing it is."""
    if inspect.isroutine(value) or inspect.ismodule(value):
        kind = "module" if inspect.ismodule(value) else "function"
        return f"the {kind} {value.__name__}"
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
    if isinstance(value, list | tuple) and value:
        return f"a {type(value).__name__} with {_shown(value[0])}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of {type(value).__name__}"
