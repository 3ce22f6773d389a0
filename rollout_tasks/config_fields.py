"""How the fields of a run's configuration are declared: their command-line spellings, and checks that several share."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo

from rollout_tasks.validation_messages import shown

_LONGEST_URL = 2000
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_PLAIN_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")


def option(default: Any, help_text: str, *spellings: str, **constraints: Any) -> Any:
    """Returns a field that is also a command-line option; the first spelling is the one that help shows."""
    return Field(default, description=help_text, json_schema_extra={"spellings": list(spellings)}, **constraints)


def safe_name(longest: int) -> AfterValidator:
    """Returns a validator for text that is safe as a folder's and as a key's name."""

    def check(name: str | None) -> str | None:
        if name is not None and not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{longest - 1}}}", name):
            raise ValueError(
                "may have letters, digits, '_', '.' and '-', the first a letter or digit,"
                f" at most {longest} characters, got {shown(name)}"
            )
        return name

    return AfterValidator(check)


def _encodable(path: Path | None) -> Path | None:
    """Rejects a path that run.json could not store, or that no file can have."""
    name = str(path or "")
    if "\0" in name or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"is no file name in UTF-8, got {shown(name)}")
    return path


FilePath = Annotated[Path, AfterValidator(_encodable)]


def check_url(url: str) -> str:
    """Returns an endpoint's address in its plain form.

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
        raise ValueError("must not carry a user, password or query: secrets come from the environment (OPENAI_API_KEY)")
    return url.strip().rstrip("/")


def _has_host(parts: SplitResult) -> bool:
    """Whether an HTTP client can look for the host; the client itself, slow to import, is only asked about foreign names.

    Raises:
        ValueError: It is written as an IP address, and is none.
    """
    host = parts.hostname or ""
    if "[" in parts.netloc:
        IPv6Address(host)
        return host.isascii() and len(host) <= 63
    if _NUMBERS.fullmatch(host):
        IPv4Address(host)
    return _PLAIN_HOST.fullmatch(host) is not None or (not host.isascii() and _is_foreign_name(host))


def _is_foreign_name(host: str) -> bool:
    import httpx2

    try:
        httpx2.URL(scheme="http", host=host)
    except httpx2.InvalidURL:
        return False
    return True


def field_spellings(field: FieldInfo) -> list[str]:
    """Returns how a field is spelled on the command line, the one that help shows first; empty if it has no option."""
    extra = field.json_schema_extra
    spellings = extra.get("spellings") if isinstance(extra, dict) else None
    return list(map(str, spellings)) if isinstance(spellings, list) else []
