"""A run's models: the options of a model and its endpoint, and the further models of agents that ask several."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from rollout_tasks.config_fields import (
    LONGEST_LIMIT,
    Part,
    check_url,
    field_spellings,
    option,
    request_fields,
    safe_name,
)
from rollout_tasks.validation_messages import clause, location_of, shown

DEFAULT_MODEL = "gpt-4.1-2025-04-14"
POOL_SCHEME = "pool://"
"""Before the name of a model pool, where an endpoint is named; nothing connects to such an address."""
_OF_THE_CONVERSATION = ("images_in", "max_images", "keep_thinking")
"""Options of a model about what a prompt has of earlier turns: further models are asked one thing at a time."""
_NOT_AS_TEXT = ("name", "extra_body", *_OF_THE_CONVERSATION)
"""Options of a model that the text of a further model does not take; the text of ``extra_body`` may hold commas."""


class ModelConfig(Part):
    """The model, and how it is called."""

    name: str = option(DEFAULT_MODEL, "Any OpenAI-compatible model.", "--model", min_length=1)
    base_url: str | None = option(
        None, "The endpoint, as in http://127.0.0.1:8000/v1. Default: OPENAI_BASE_URL, else OpenAI.", "--base-url"
    )
    pool: Annotated[str | None, safe_name(64)] = option(
        None, "A model pool of your workers' Redis, in place of an endpoint (rollouts model).", "--model-pool"
    )
    temperature: float | None = option(
        None, "Sampling temperature; unset leaves it to the endpoint.", "--temperature", ge=0, le=2
    )
    top_p: float | None = option(None, "Nucleus sampling; unset leaves it to the endpoint.", "--top-p", gt=0, le=1)
    max_completion_tokens: int | None = option(
        None,
        "Tokens a single reply may have, thinking included; a text that is cut off there is not an answer.",
        "--max-completion-tokens",
        ge=1,
    )
    seed: int | None = option(
        None,
        "Sampling seed of an item's first rollout, the next has the next; an endpoint that honours it repeats its replies.",
        "--model-seed",
    )
    extra_body: dict[str, Any] = option(
        {}, "More fields of each request, as a JSON object: '{\"top_k\": 20}'.", "--extra-body", validate_default=False
    )
    timeout: float = option(120.0, "Seconds one model call may take.", "--model-timeout", gt=0, le=LONGEST_LIMIT)
    max_retries: int = option(
        3, "Tries of one model call before its rollout fails, the first one included.", "--max-retries", ge=1
    )
    images_in: Literal["user", "tool"] = option(
        "user",
        "Where screenshots of tool results go: a user message after the results (works everywhere) or the tool message.",
        "--images-in",
    )
    max_images: int | None = option(
        10,
        "Screenshots in a prompt at most, the newest ones; a note replaces each older one. 'all' sends every one.",
        "--max-images",
        ge=0,
    )
    keep_thinking: bool = option(
        False,
        "Send the model its thinking of earlier turns back, in the fields it came in. Some models need it to call tools.",
        "--keep-thinking",
    )
    prompt_price: float | None = option(
        None, "Dollars per million prompt tokens. Default: the provider's list price, if known.", "--prompt-price", ge=0
    )
    completion_price: float | None = option(
        None, "Dollars per million completion tokens; with --prompt-price.", "--completion-price", ge=0
    )
    api: Literal["chat", "responses", "messages"] = Field(
        "chat",
        description="Chat Completions, OpenAI's Responses API or Anthropic's Messages API; the agent's profile says which.",
    )
    scripted: bool = Field(False, description="Set by the preflight when the endpoint is the scripted model.")

    @field_validator("max_images", mode="before")
    @classmethod
    def _all_is_no_limit(cls, value: Any) -> Any:
        return None if value == "all" else value

    @field_validator("extra_body", mode="before")
    @classmethod
    def _object(cls, value: Any) -> Any:
        return request_fields(value)

    @property
    def answerer(self) -> str:
        """What answers, for reports: the model's name, or ``scripted``."""
        return "scripted" if self.scripted else self.name

    @field_validator("base_url")
    @classmethod
    def _plain_http(cls, url: str | None) -> str | None:
        return None if url is None else check_url(url)


class ModelRole(Part):
    """A further model, for agents that ask several: what it does there, and how it is asked."""

    role: Annotated[str, safe_name(32)]
    """What the agent calls it, as in ``grounder``."""
    model: ModelConfig
    """Whose ``timeout`` and ``max_retries`` are the run's, unless given."""
    profile: str | dict[str, Any] | None = None
    """How it is asked: the profile of an agent, or the file of one; a submission puts the profile itself here."""

    @property
    def profile_name(self) -> str:
        """The profile's name, with its version if that is known."""
        if isinstance(self.profile, dict):
            return f"{self.profile.get('name')} {self.profile.get('version')}"
        return self.profile or "no profile"

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return cls._read(value) if isinstance(value, str) else value

    @staticmethod
    def _read(text: str) -> dict[str, Any]:
        """Takes the text of the option apart: ``grounder=MODEL,base-url=URL,profile=uitars-1.5``.

        Raises:
            ValueError: It does not look like that, or an option is unknown or given twice.
        """
        role, _, rest = text.partition("=")
        name, *options = rest.split(",")
        if not role or not name:
            raise ValueError("must look like grounder=MODEL,base-url=URL,profile=NAME")
        fields = _spelled_fields()
        model: dict[str, Any] = {"name": name}
        found: dict[str, Any] = {"role": role, "model": model}
        for one in options:
            key, _, value = one.partition("=")
            if key != "profile" and key not in fields:
                raise ValueError(f"{role}: {shown(key)} is not one of {', '.join(['profile', *fields])}")
            if not value:
                raise ValueError(f"{role}: {key} has no value: it must look like {key}=VALUE")
            values, field = (found, "profile") if key == "profile" else (model, fields[key])
            if field in values:
                raise ValueError(f"{role}: {key} is given twice")
            values[field] = value
        return found

    @model_validator(mode="after")
    def _asks_one_thing(self) -> ModelRole:
        default = ModelConfig()
        for name in _OF_THE_CONVERSATION:
            if getattr(self.model, name) != getattr(default, name):
                raise ValueError(f"{name}: a further model sees one screenshot, and no earlier turn")
        if self.model.scripted:
            raise ValueError("scripted: a further model is never scripted")
        return self


def _spelled_fields() -> dict[str, str]:
    """Returns the options of a model that the text of a `ModelRole` takes, by their spelling without dashes: ``base-url``."""
    spelled = {}
    for field, declared in ModelConfig.model_fields.items():
        if (spellings := field_spellings(declared)) and field not in _NOT_AS_TEXT:
            spelled[spellings[0].removeprefix("--")] = field
    return spelled


def model_roles(values: Any) -> Any:
    """Returns further models, each checked by itself, so that a message names the one that is wrong.

    Args:
        values: A list of `ModelRole`s: as text, as mappings, or themselves.

    Raises:
        ValueError: One is wrong, or two have one name.
    """
    if not isinstance(values, list | tuple):
        return values
    roles: list[ModelRole] = []
    for number, value in enumerate(values):
        try:
            role = ModelRole.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(_sentence(first, value, number)) from error
        if any(role.role == other.role for other in roles):
            raise ValueError(f"two models are named {role.role}")
        roles.append(role)
    return tuple(roles)


def _sentence(error: Any, value: Any, number: int) -> str:
    """Returns what is wrong with a further model, with its name and that of the option, as far as there are any."""
    if not isinstance(value, str):
        role = value.get("role") if isinstance(value, dict) else None
        location = ".".join(map(str, location_of(error, value)))
        return ": ".join([shown(role) if role else f"number {number + 1}", *filter(None, [location]), clause(error)])
    field = next((str(part) for part in error["loc"] if part != "model"), None)
    if field is None:
        return clause(error)
    spelled = {name: spelling for spelling, name in _spelled_fields().items()}
    return f"{value.partition('=')[0]}: {spelled.get(field, field)}: {clause(error)}"
