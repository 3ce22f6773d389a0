"""How fields of configurations and agents' profiles are declared: their command-line spellings, and checks that they share."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from rollout_tasks.validation_messages import shown

LONGEST_LIMIT = 999_999.0
"""Seconds, more than eleven days: the most that a limit may say. Timers overflow at some point."""
_LONGEST_URL = 2000
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_PLAIN_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")

_OF_THE_REQUEST = frozenset(
    {"model", "messages", "input", "tools", "temperature", "top_p", "max_completion_tokens", "seed", "stream", "n"}
)
_DEEPEST = 20
"""Lists and objects within each other, in fields of a request."""
_SECRET = re.compile(
    r"(.*_)?(api_?key|secret|secret_key|access_key|private_key|authorization|bearer|password|passwd|credentials?)"
    r"|((access|api|auth|bearer|hf|refresh|session)_)?token"
)
"""Names of fields, in lower case and with _ in place of -, whose text is a secret."""


class Part(BaseModel):
    """A part of what users configure: without unknown fields, and without a truth value where a number belongs.

    YAML reads ``yes`` and ``on`` as true, which is 1 to Python.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name is not None:
            accepted_types = _kinds_in(cls.model_fields[info.field_name].annotation)
            if accepted_types & {int, float} and bool not in accepted_types:
                raise ValueError(
                    f"must be {'a number' if float in accepted_types else 'a whole number'}, got {shown(value)}"
                )
        return value


def _kinds_in(annotation: Any) -> set[Any]:
    """Returns the types that a value may be of."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds_in(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return set().union(*map(_kinds_in, get_args(annotation)))
    return {annotation if origin is None else origin}


def option(default: Any, help_text: str, *spellings: str, panel: str = "", **constraints: Any) -> Any:
    """Returns a field that is also a command-line option.

    Args:
        default: What it is if it is not given.
        help_text: What it does.
        spellings: Its names; the first is the one that help shows.
        panel: Under which heading help shows it; default: the part of the configuration.
        constraints: More of `pydantic.Field`.
    """
    extra: dict[str, Any] = {"spellings": list(spellings), "panel": panel}
    return Field(default, description=help_text, json_schema_extra=extra, **constraints)


def safe_name(longest: int) -> AfterValidator:
    """Returns a validator for text that is safe as a folder's and as a key's name."""
    return AfterValidator(lambda name: name if name is None else check_name(name, longest))


def check_name(name: str, longest: int) -> str:
    """Returns a name that is safe as a folder's and as a key's.

    Args:
        name: The name.
        longest: The most characters that it may have.

    Raises:
        ValueError: It is not safe; one clause.
    """
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{longest - 1}}}", name):
        raise ValueError(
            "may have letters, digits, '_', '.' and '-', the first a letter or digit,"
            f" at most {longest} characters, got {shown(name)}"
        )
    return name


def _encodable(path: Path | None) -> Path | None:
    """Rejects a path that run.json could not store, or that no file can have."""
    name = str(path or "")
    if "\0" in name or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"is not a file name in UTF-8, got {shown(name)}")
    return path


def request_fields(value: Any) -> dict[str, Any]:
    """Returns further fields of each request to a model.

    Args:
        value: An object, or its JSON text.

    Raises:
        ValueError: They are not a JSON object, or set what a run sets itself, or a field is named as secrets are.
    """
    fields = json_object(value)
    if taken := sorted(_OF_THE_REQUEST & fields.keys()):
        raise ValueError(f"may not set {taken[0]}, which the run sets itself")
    return fields


def json_object(value: Any) -> dict[str, Any]:
    """Returns an object that run.json stores, so that it must not hold a secret.

    Args:
        value: The object, or its JSON text.

    Raises:
        ValueError: It is not a JSON object, or a field is named as secrets are.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, got {shown(value)}")
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("holds something that JSON does not have") from error
    if secret := _secret_in(value, _DEEPEST):
        raise ValueError(
            f"may not hold {secret}, which run.json would store: keys belong in OPENAI_API_KEY, or in .env"
        )
    return value


def _secret_in(value: Any, deepest: int) -> str | None:
    """Returns the name of a field that holds a secret."""
    if not isinstance(value, list | tuple | dict):
        return None
    if deepest == 0:
        raise ValueError(f"holds more than {_DEEPEST} lists and objects within each other")
    if not isinstance(value, dict):
        return next((found for one in value if (found := _secret_in(one, deepest - 1))), None)
    for name, inner in value.items():
        if isinstance(inner, str) and _SECRET.fullmatch(str(name).lower().replace("-", "_")):
            return str(name)
        if found := _secret_in(inner, deepest - 1):
            return found
    return None


FilePath = Annotated[Path, AfterValidator(_encodable)]


def _no_url(value: Any) -> Any:
    """Refuses a URL: as a path, it would be a folder of that name."""
    if isinstance(value, str | Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(value)):
        raise ValueError(
            "must be a folder, not a URL: roll out in a folder, and copy it with: rollouts copy RUN URL --follow"
        )
    return value


FolderPath = Annotated[FilePath, BeforeValidator(_no_url)]


def check_url(url: str, *, variable: str = "OPENAI_API_KEY") -> str:
    """Returns an endpoint's address in its plain form.

    Args:
        url: The address.
        variable: Where its secret belongs, for the error.

    Raises:
        ValueError: It is not an address, or contains a secret; the message does not repeat it.
    """
    try:
        parts = urlsplit(url.strip())
        fine = parts.scheme in {"http", "https"} and _has_host(parts) and parts.port != 0
        fine = fine and url.isprintable() and len(url) <= _LONGEST_URL and not parts.fragment
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("must look like http://host:port/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError(f"must not carry a user, password or query: secrets come from the environment ({variable})")
    return url.strip().rstrip("/")


def _has_host(parts: SplitResult) -> bool:
    """Whether an HTTP client can look for the host; the client itself, slow to import, is only asked about foreign names.

    Raises:
        ValueError: It is written as an IP address, and is not one.
    """
    host = parts.hostname or ""
    if "[" in parts.netloc:
        IPv6Address(host)
        return host.isascii() and len(host) <= 63
    if _NUMBERS.fullmatch(host):
        IPv4Address(host)
    return _PLAIN_HOST.fullmatch(host) is not None or (not host.isascii() and _is_foreign_name(host))


def _is_foreign_name(host: str) -> bool:
    import httpx2  # here, because it is slow to import, and few hosts have such names

    try:
        httpx2.URL(scheme="http", host=host)
    except httpx2.InvalidURL:
        return False
    return True


def field_panel(field: FieldInfo) -> str:
    """Returns the heading under which help shows a field; empty if that of its part."""
    extra = field.json_schema_extra
    return str(extra.get("panel", "")) if isinstance(extra, dict) else ""


def field_spellings(field: FieldInfo) -> list[str]:
    """Returns how a field is spelled on the command line, the one that help shows first; empty if it has no option."""
    extra = field.json_schema_extra
    spellings = extra.get("spellings") if isinstance(extra, dict) else None
    return list(map(str, spellings)) if isinstance(spellings, list) else []
