"""A machine's settings, which a run must not carry: addresses and secrets, from the environment and `.env` only."""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmark.http_client import plain_key
from rollout_tasks.errors import UserError
from rollout_tasks.redis_address import checked_redis_url
from rollout_tasks.validation_messages import clause

LOCAL_REDIS = "redis://127.0.0.1:6379/0"
_SILENT_SECONDS = 15.0


_LONGEST = 86_400.0
"""Seconds: the most that a setting may say."""


class Settings(BaseSettings):
    """The settings, read once per process; every field names its environment variable."""

    model_config = SettingsConfigDict(
        env_file=".env",
        extra="ignore",
        env_ignore_empty=True,
        hide_input_in_errors=True,  # a traceback would show it
    )

    redis_url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("ROLLOUT_REDIS_URL", "REDIS_URL", "CELERY_BROKER_URL"),
        description="Broker, run store and VM pool, as in redis://:password@host:6379/0.",
    )
    openai_api_key: SecretStr | None = Field(None, validation_alias="OPENAI_API_KEY", description="The model's key.")
    role_keys: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_ROLE_KEYS",
        description="Keys of further models (--model-role), as ROLE:KEY with blanks between.",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL"),
        description="The model's endpoint.",
    )
    visibility_timeout: float = Field(
        120.0,
        gt=0,
        le=_LONGEST,
        validation_alias="ROLLOUT_VISIBILITY_TIMEOUT",
        description="Seconds without a heartbeat after which a rollout's message goes to another worker.",
    )
    lease_ttl: float = Field(
        60.0,
        gt=0,
        le=_LONGEST,
        validation_alias="ROLLOUT_LEASE_TTL",
        description="Seconds a VM's lease lives without renewal.",
    )
    reconcile_every: float = Field(
        30.0,
        gt=0,
        le=_LONGEST,
        validation_alias="ROLLOUT_RECONCILE_EVERY",
        description="Seconds between looks for lost work.",
    )

    download_hosts: str = Field(
        "",
        validation_alias="ROLLOUT_DOWNLOAD_HOSTS",
        description="Hosts of your own network, as NAME or NAME:PORT with commas between, that tasks' files may come from.",
    )

    search_url: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_SEARCH_URL",
        description="The search service of web runs, as in http://127.0.0.1:8888; default: --web-search's own.",
    )
    search_key: SecretStr | None = Field(
        None, validation_alias="ROLLOUT_SEARCH_KEY", description="The search service's key."
    )
    web_hosts: str = Field(
        "",
        validation_alias="ROLLOUT_WEB_HOSTS",
        description="Hosts of your own network, as NAME or NAME:PORT with commas between, whose pages web runs may visit.",
    )

    trust_tasks: bool = Field(
        False,
        validation_alias="ROLLOUT_TRUST_TASKS",
        description="Whether tasks' setup and evaluation run in the worker's own process instead of in a cell.",
    )

    service_tokens: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_SERVICE_TOKENS",
        description="Who may use services over HTTP, as NAME:TOKEN with blanks between.",
    )

    embeddings_url: str | None = Field(
        None,
        validation_alias="ROLLOUT_EMBEDDINGS_URL",
        description="The endpoint for embeddings, as in http://127.0.0.1:8000/v1; default: the model's.",
    )
    embeddings_key: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_EMBEDDINGS_KEY",
        description="Its key; default: the model's, for the model's endpoint alone.",
    )
    retriever_token: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_RETRIEVER_TOKEN",
        description="The token for the server that --retriever names.",
    )

    index_url: SecretStr | None = Field(
        None,
        validation_alias="ROLLOUT_INDEX_URL",
        description="The index of rollouts for trainers, as in postgresql://user:password@host/name.",
    )

    @field_validator("redis_url")
    @classmethod
    def _is_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            checked_redis_url(url.get_secret_value())
        return url

    @field_validator("search_url")
    @classmethod
    def _is_service(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parts = urlsplit(url.get_secret_value().strip())
            if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
                raise ValueError("must look like http://host:port")
        return url

    @field_validator("download_hosts", "web_hosts")
    @classmethod
    def _are_hosts(cls, words: str) -> str:
        if wrong := [word for word in words.split(",") if any(sign in word.strip() for sign in "/@ *")]:
            raise ValueError(f"must name hosts, as files.example or files.example:8000, got {wrong[0].strip()!r}")
        return words

    @property
    def trusted_hosts(self) -> frozenset[str]:
        """The hosts of `download_hosts`."""
        return _hosts(self.download_hosts)

    @property
    def visitable_hosts(self) -> frozenset[str]:
        """The hosts of `web_hosts`."""
        return _hosts(self.web_hosts)

    @property
    def silent_seconds(self) -> float:
        """How long a holder may be silent before another takes over: at most as long as a rollout's message or lease."""
        return min(_SILENT_SECONDS, self.visibility_timeout, self.lease_ttl)

    @property
    def beat_seconds(self) -> float:
        """Seconds between two heartbeats: three chances before the holder counts as dead."""
        return self.silent_seconds / 3

    @property
    def broker_configured(self) -> bool:
        """Whether Redis's address is configured; if not, runs are embedded."""
        return self.redis_url is not None

    @property
    def redis_address(self) -> str:
        """The Redis URL in use, password included: for clients only, never for a message."""
        return self.redis_url.get_secret_value() if self.redis_url else LOCAL_REDIS


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Returns this process's settings.

    Raises:
        UserError: A variable's value is invalid; names the variable. Or the file .env cannot be read.
    """
    try:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f".env cannot be read: {why}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{_variable(str(first['loc'][0]))}: {clause(first)} (an environment variable)") from error


def checked_key(key: str, variable: str = "OPENAI_API_KEY") -> str:
    """Returns a model's key without surrounding blanks.

    Args:
        key: The key.
        variable: Where it was configured, for the error.

    Raises:
        UserError: It cannot be sent in a header; the message does not contain it.
    """
    try:
        return plain_key(key)
    except ValueError as error:
        raise UserError(f"{variable}: {error}") from error


def _hosts(words: str) -> frozenset[str]:
    return frozenset(host for word in words.split(",") if (host := word.strip().lower().rstrip(".")))


def trust_tasks() -> None:
    """Makes this process, and those it starts, run tasks' setup and evaluation in the worker's own process."""
    os.environ["ROLLOUT_TRUST_TASKS"] = "1"
    settings.cache_clear()


def _variable(name: str) -> str:
    """Returns the one that is set of the variables for a setting."""
    for field in Settings.model_fields.values():
        names = field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else []
        if name in names:
            return next((str(one) for one in names if one in os.environ), name)
    return name
