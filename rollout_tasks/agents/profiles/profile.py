"""A profile: how an agent talks to its model, as one value with a name and a version.

What a prompt file does not hold, and what measured scores depend on: which steps and pictures a prompt has, how pictures are
encoded, what the model's coordinates span, and how replies are sampled. A run's record has its profile whole.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rollout_tasks.agents.profiles.coordinates import Resizing, Rounding
from rollout_tasks.config_fields import LONGEST_LIMIT, Part, request_fields, safe_name

MOST_PIXELS = 7680 * 4320
LONGEST_TEXT = 200_000
"""Characters of one text of a prompt; bytes of a file with one."""


_PlainText = Annotated[str, Field(max_length=LONGEST_TEXT)]


class PackagedText(Part):
    """A text that is read from the source of an installed package when it is needed; the package's code is not run."""

    module: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)
    """As in ``mm_agents.opencua.prompts``."""
    name: str = Field(max_length=200)
    """A name in it, an entry of a list there, or a variable of a method: ``Class.method.variable``."""
    values: dict[str, _PlainText | PackagedText | tuple[_PlainText | PackagedText, ...]] = Field({}, max_length=50)
    """What replaces names that the text uses: ``{name}`` in it, variables, ``self.name``, and any expression of an
    f-string, as it is written there."""


Text = _PlainText | PackagedText | tuple[_PlainText | PackagedText, ...]
"""A text, one of a package, or several of both in a row."""


class Prompts(Part):
    """The texts of a prompt, and where they stand."""

    system: Text | None = None
    """The system message; it may hold ``{client_password}``, ``{date}``, ``{picture_width}`` and ``{picture_height}``."""
    task: Text
    """What is asked: ``{instruction}``, and ``{previous_actions}`` where these are wanted. Holds what `system` may hold, too."""
    task_with: Literal["itself", "first_picture", "current_picture"] = "itself"
    """Whether the task is a message of its own before all pictures, or stands after a picture in that one's message."""
    step: Text | None = None
    """An earlier reply as it is sent back, made of ``{number}`` (from 1), ``{action}``, ``{thought}``, ``{observation}`` and
    ``{reply}``; None: as the model wrote it."""
    older_step: Text | None = None
    """The same for steps whose picture is no longer sent, with `History.older` ``action``; None: as `step`."""
    no_older_steps: str = Field("", max_length=1000)
    """What replaces ``{previous_actions}`` if there are none."""
    unnamed_action: str = Field("{kind}", max_length=1000)
    """``{action}`` of a reply that does not say in words what it does; ``{kind}`` is pyautogui's name of its first action."""
    text_in_parts: bool = True
    """Whether system and assistant messages hold a list with their text, or the text itself. User messages hold lists."""


class History(Part):
    """Which earlier steps a prompt has."""

    images: int | None = Field(5, ge=1)
    """Pictures in a prompt at most, the current one included; None: all of them. ``--max-images`` takes precedence."""
    older: Literal["reply", "placeholder", "action", "dropped"] = "reply"
    """What becomes of a step whose picture is no longer sent: its reply stays alone, or with a note in the picture's place; or
    only its action as text, in ``{previous_actions}`` or else in a message; or nothing."""
    steps: int | None = Field(None, ge=0)
    """Such older steps at most, the newest ones; None: all of them."""
    thinking: bool = True
    """Whether replies that are sent back keep their thinking: the text until ``</think>``."""
    box_tokens: bool = False
    """Whether places in replies that are sent back get the box tokens of UI-TARS 1.5."""
    whole_line: bool = False
    """Whether ``{action}`` is the whole line that names the action, as Qwen2.5-VL has it, ``Action:`` included."""


class Resize(Part):
    """Both sides become multiples of a factor, within limits of pixels. A factor of 1 only keeps the limits."""

    factor: int = Field(ge=1, le=1000)
    fewest_pixels: int = Field(1, ge=1, le=MOST_PIXELS)
    most_pixels: int = Field(MOST_PIXELS, ge=1, le=MOST_PIXELS)

    @model_validator(mode="after")
    def _in_order(self) -> Resize:
        if self.fewest_pixels > self.most_pixels:
            raise ValueError("fewest_pixels is more than most_pixels")
        return self

    @property
    def resizing(self) -> Resizing:
        """The rule itself."""
        return Resizing(self.factor, self.fewest_pixels, self.most_pixels)


class Pictures(Part):
    """How screenshots are sent."""

    format: Literal["unchanged", "png", "jpeg", "webp"] = "unchanged"
    """``unchanged``: the PNG of the desktop, byte for byte."""
    quality: int | None = Field(None, ge=1, le=100)
    """Of JPEG and WebP; None: 75, as Pillow has it."""
    resize: Resize | None = None
    size: tuple[Annotated[int, Field(ge=1, le=7680)], Annotated[int, Field(ge=1, le=7680)]] | None = None
    """An exact width and height in place of `resize`, whatever the screen's shape."""

    @model_validator(mode="after")
    def _possible(self) -> Pictures:
        if self.format == "unchanged" and (self.resize is not None or self.size is not None):
            raise ValueError("a picture that is resized has a new format: png, jpeg or webp")
        if self.resize is not None and self.size is not None:
            raise ValueError("resize and size exclude each other")
        if self.quality is not None and self.format not in ("jpeg", "webp"):
            raise ValueError("only jpeg and webp have a quality")
        return self


class Places(Part):
    """What the model's coordinates mean."""

    span: Literal["screen", "picture", "resized", "grid", "shares"]
    """The screen in pixels, the picture as sent, the picture as the model's own processor resizes it, a grid, or 0 to 1."""
    grid: tuple[Annotated[int, Field(ge=1, le=100_000)], Annotated[int, Field(ge=1, le=100_000)]] | None = None
    """The highest coordinates, with ``grid``."""
    resize: Resize | None = None
    """How the model's processor resizes, with ``resized``."""
    rounding: Rounding = Rounding.DOWN

    @model_validator(mode="after")
    def _complete(self) -> Places:
        for span, given in (("grid", self.grid), ("resized", self.resize)):
            if (self.span == span) != (given is not None):
                field = "grid" if span == "grid" else "resize"
                raise ValueError(f"{field} and the span {span} belong together")
        return self


class Sampling(Part):
    """How replies are sampled; None leaves it to the endpoint. The run's own options win."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    """Of one reply, thinking included; sent under this name, or as ``max_output_tokens`` in the Responses API.
    ``--max-completion-tokens`` replaces it."""
    extra: dict[str, Any] = Field({})
    """More fields of each request; ``--extra-body`` takes precedence field by field."""

    @field_validator("extra", mode="before")
    @classmethod
    def _fields(cls, extra: Any) -> Any:
        return request_fields(extra)


_COMPUTER_TOOLS: dict[str, tuple[str, ...]] = {
    "responses_computer": ("computer_use_preview", "computer"),
    "anthropic_computer": ("computer_20250124", "computer_20251124"),
}
_APIS: dict[str, Literal["responses", "messages"]] = {
    "responses_computer": "responses",
    "anthropic_computer": "messages",
}


class Profile(Part):
    """A profile."""

    name: Annotated[str, safe_name(64)]
    version: str = Field(min_length=1, max_length=64)
    protocol: Literal["ui_tars", "qwen", "thought_action_code", "responses_computer", "anthropic_computer"]
    """How replies are read: the module of this name. With ``responses_computer`` the model is called through OpenAI's Responses
    API, with ``anthropic_computer`` through Anthropic's Messages API; of prompts and history these use `Prompts.system`,
    `Prompts.task` and `History.images` alone."""
    computer_tool: Literal["computer_use_preview", "computer", "computer_20250124", "computer_20251124"] | None = None
    """With these two: the tool that the endpoint offers to the model; the first two are OpenAI's."""
    prompts: Prompts
    history: History = History()
    pictures: Pictures = Pictures()
    places: Places
    sampling: Sampling = Sampling()
    pause: float | None = Field(None, ge=0, le=120)
    """Seconds between an action and its screenshot; None: the run's. ``--sleep-after-execution`` takes precedence."""
    max_steps: int | None = Field(None, ge=1)
    """Replies of an episode; None: the run's. ``--max-turns`` takes precedence."""
    max_seconds: float | None = Field(None, gt=0, le=LONGEST_LIMIT)
    """Wall time of an episode; None: the run's. ``--task-timeout`` takes precedence."""
    context_length: int | None = Field(None, ge=1)
    """Tokens that the endpoint must be able to hold, prompt and reply together; None: it is not checked."""
    user_calls: int = Field(0, ge=0, le=1000)
    """How often the model may call for the user and is only kept waiting; the next call is a ``fail``."""
    after_unusable: Literal["explain", "resample"] = "explain"
    """Whether a reply without a usable action is answered with what is wrong, or the same prompt is sent again."""

    @property
    def api(self) -> Literal["chat", "responses", "messages"]:
        """The API in which the model is asked."""
        return _APIS.get(self.protocol, "chat")

    @model_validator(mode="after")
    def _with_a_tool(self) -> Profile:
        tools = _COMPUTER_TOOLS.get(self.protocol, (None,))
        if self.computer_tool not in tools:
            raise ValueError(f"computer_tool must be {' or '.join(map(str, tools))} with the protocol {self.protocol}")
        return self

    @model_validator(mode="after")
    def _with_most_tokens(self) -> Profile:
        if self.protocol == "anthropic_computer" and self.sampling.max_tokens is None:
            raise ValueError("sampling.max_tokens is missing: Anthropic's API needs it")
        return self

    @model_validator(mode="after")
    def _with_two_pictures(self) -> Profile:
        if self.protocol == "responses_computer" and self.history.images == 1:
            raise ValueError(
                "history.images must be at least 2: the first screenshot, with the task, and the current one"
            )
        return self

    @field_validator("version", mode="before")
    @classmethod
    def _number_is_text(cls, version: Any) -> Any:
        if isinstance(version, float):
            raise ValueError(f"write it in quotes, as in '1.10': without them YAML takes it for the number {version:g}")
        return str(version) if type(version) is int else version
