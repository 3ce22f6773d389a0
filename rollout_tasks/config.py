"""Every option of a run, each with its type, default, meaning and command-line spellings.

A `RunConfig` never holds a secret: it is written to the run's folder and sent to workers. Keys, passwords and broker
addresses are in `rollout_tasks.settings`, which reads the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from rollout_tasks.config_fields import (
    LONGEST_LIMIT,
    FilePath,
    FolderPath,
    Part,
    field_spellings,
    json_object,
    option,
    safe_name,
)
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.model_config import ModelConfig, ModelRole, model_roles
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.validation_messages import clause, location_of, shown
from rollout_tasks.web_config import WebConfig

MOST_ROLLOUTS = 10_000
"""Of an item in a run."""


class DataConfig(Part):
    """The benchmark, and which of its items to roll out."""

    path: FilePath | None = option(
        None,
        "Benchmark: JSONL, JSON, CSV, Parquet, a dataset's folder, an OSWorld tree; - reads JSONL from standard input.",
        "--data-path",
        "--data",
    )
    answer_pattern: str | None = option(
        None,
        "Regular expression whose first group is the reference answer inside a longer one, as in '#### (.+)'.",
        "--answer-pattern",
    )
    fields: tuple[str, ...] = option(
        (), "What a field is called in the data, as in question=prompt or answer=label; repeatable.", "--field"
    )
    split: str | None = option(None, "Which split of a dataset that has several.", "--split")
    skip_invalid: bool = option(False, "Leave out items that cannot be read instead of stopping.", "--skip-invalid")
    ids: tuple[str, ...] = option(
        (), "Only this item, or those that fit a pattern as 'chrome-*'; repeatable.", "--item"
    )
    domains: tuple[str, ...] = option((), "Only this domain, or those that fit a pattern; repeatable.", "--domain")
    shuffle: bool = option(False, "Take the items in an order that --seed decides.", "--shuffle")
    seed: int = option(0, "With --shuffle: same seed, same order.", "--seed")
    limit: int | None = option(None, "At most this many of the items selected.", "--limit", ge=1)

    @field_validator("fields")
    @classmethod
    def _are_names(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        for one in fields:
            name, _, data_field = one.partition("=")
            if not name or not data_field:
                raise ValueError(f"must look like question=prompt, got {one!r}")
        return fields

    @property
    def field_names(self) -> dict[str, str]:
        """Each field's name in the data, where that differs."""
        return dict(one.partition("=")[::2] for one in self.fields)

    @field_validator("answer_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            import regex  # here, because few runs need it

            try:
                compiled = regex.compile(pattern)
            except regex.error as error:
                raise ValueError(f"is not a regular expression: {error}") from error
            if compiled.groups < 1:
                raise ValueError("needs one group (...) around the answer")
        return pattern


class Limits(Part):
    """The limits of one attempt."""

    max_turns: int = option(50, "Model turns in one attempt.", "--max-turns", ge=1)
    max_seconds: float = option(
        600.0,
        "Wall time that an agent has for one attempt; setup and evaluation have as much each.",
        "--task-timeout",
        gt=0,
        le=LONGEST_LIMIT,
    )
    max_tokens: int | None = option(None, "Prompt and completion tokens of one attempt together.", "--max-tokens", ge=1)


class VMConfig(Part):
    """Which VM a rollout gets, if it needs one."""

    use_pool: bool = option(
        True,
        "Share a pool of VMs; --no-pool gives every rollout a VM of its own.",
        "--use-resource-pool/--no-pool",
        "--use-vm-pool",
    )
    pool: Annotated[str, safe_name(64)] = option("default", "The pool's name.", "--pool")
    num_vms: int = option(
        3, "M, VMs in the pool of an embedded run; elsewhere each host says its own.", "--num-vms", ge=1
    )
    provider_name: str = option("simulated", "Where VMs come from.", "--provider-name", "--provider")
    provider_options: dict[str, Any] = Field(default_factory=dict, description="What the provider itself understands.")
    guest_network: str = option(
        "none",
        "What desktops of local and qemu may reach: none, internet, or sites as in a.org,*.b.org; a pool's VM hosts set it.",
        "--guest-network",
    )
    wait_seconds: float = option(
        1800.0, "How long a rollout waits for a VM before the attempt fails.", "--vm-wait", gt=0, le=LONGEST_LIMIT
    )
    path_to_vm: str | None = option(None, "A VM image, for providers that need one.", "--path-to-vm")
    region: str | None = option(None, "Region, for cloud providers.", "--region")
    snapshot_name: str = option("init_state", "The snapshot VMs are reset to.", "--snapshot-name")

    @field_validator("guest_network")
    @classmethod
    def _policy(cls, text: str) -> str:
        from vm_pool.egress.policy import parse_policy  # here, because its package imports Redis's client

        return str(parse_policy(text))


class DesktopConfig(Part):
    """What a desktop environment shows and accepts; other environments ignore it."""

    action_space: Literal["computer_13", "pyautogui", "claude_computer_use"] = option(
        "computer_13", "Tools on offer.", "--action-space"
    )
    observation_type: Literal["screenshot", "a11y_tree", "screenshot_a11y_tree", "som"] = option(
        "screenshot_a11y_tree", "What the agent sees.", "--observation-type"
    )
    screen_width: int = option(1920, "Pixels.", "--screen-width", ge=1)
    screen_height: int = option(1080, "Pixels.", "--screen-height", ge=1)
    headless: bool = option(False, "Without a window on the host.", "--headless")
    client_password: str = option(
        "password",
        "The guest user's password. Told to the model, so not a secret.",
        "--client-password",
    )
    os_type: Literal["Ubuntu", "Windows"] = option("Ubuntu", "The guest's system.", "--os-type")
    a11y: Literal["outline", "osworld"] = option(
        "outline",
        "How the accessibility tree is written: as an outline of what can be acted on, or as the table of OSWorld's own agents.",
        "--a11y",
    )
    require_a11y_tree: bool = option(True, "Ask for the accessibility tree.", "--require-a11y-tree/--no-a11y-tree")
    require_terminal: bool = option(False, "Ask for the terminal's text.", "--require-terminal")
    sleep_after_execution: float = option(
        2.0,
        "Seconds between an action and its observation.",
        "--sleep-after-execution",
        ge=0,
    )
    include_unfaithful: bool = option(
        False,
        "Also roll out tasks that need what the VMs do not have, or that score differently there; the report names them.",
        "--include-unfaithful",
    )
    enable_recording: bool = option(True, "Keep a video of each episode.", "--enable-recording/--no-recording")


class SimulatedConfig(Part):
    """How the `simulated` environment behaves; an item's `env_config` overrides each field."""

    seconds: tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]] = Field(
        (0.5, 3.0), description="Shortest and longest episode, drawn uniformly."
    )
    steps: int = Field(5, ge=1, le=10_000, description="Actions an episode is divided into.")
    needs_vm: bool = Field(True, description="Whether episodes lease a VM.")
    seed: int = Field(0, description="Same seed, item and index: same draw.")
    fail: FailureClass | None = Field(
        None, description="Failure class each attempt ends with, until `fail_times` is used up."
    )
    fail_times: int = Field(1, ge=0, description="Attempts of a rollout that fail this way.")
    success_rate: float = Field(1.0, ge=0, le=1, description="Share of episodes that score 1 instead of 0.")

    @field_validator("seconds", mode="before")
    @classmethod
    def _two(cls, seconds: Any) -> Any:
        if not isinstance(seconds, list | tuple) or len(seconds) != 2:
            raise ValueError(f"must be two numbers, the shortest and the longest, got {shown(seconds)}")
        return seconds

    @field_validator("seconds")
    @classmethod
    def _in_order(cls, seconds: tuple[float, float]) -> tuple[float, float]:
        if seconds[0] > seconds[1]:
            raise ValueError(f"the shortest must not be above the longest, got {seconds[0]:g} and {seconds[1]:g}")
        return seconds


class RunConfig(Part):
    """The options of one run."""

    data: DataConfig = DataConfig()
    env_mode: str = option(
        "osworld", "The environment: osworld, math, py, ... (rollouts list environments).", "--env-mode", "--mode"
    )
    agent: str | None = option(
        None, "The agent, or the file of a profile; default: the environment's own (rollouts list agents).", "--agent"
    )
    agent_options: dict[str, Any] = option(
        {},
        'Arguments of one of OSWorld\'s own agents, as a JSON object: \'{"coordinate_type": "qwen25"}\'.',
        "--agent-options",
        validate_default=False,
    )
    system_prompt: str | None = Field(
        None,
        description="In place of the agent's own; {instructions} and {tools} stand for the environment's.",
        min_length=1,
        max_length=100_000,
    )
    profile: dict[str, Any] | None = Field(
        None, description="The agent's profile, for agents that have one; filled in at submission."
    )
    model: ModelConfig = ModelConfig()
    model_roles: tuple[ModelRole, ...] = option(
        (),
        "A further model, for agents that ask several, as in grounder=MODEL,profile=NAME; repeatable.",
        "--model-role",
        panel="Model",
    )
    limits: Limits = Limits()
    vm: VMConfig = VMConfig()
    desktop: DesktopConfig = DesktopConfig()
    web: WebConfig = WebConfig()
    rag: RagConfig = RagConfig()
    simulated: SimulatedConfig = SimulatedConfig()
    num_rollouts: int = option(
        5,
        "N, rollouts at a time in an embedded run; elsewhere `celery worker --concurrency` says.",
        "--num-rollouts",
        ge=1,
    )
    rollouts_per_item: int = option(
        1, "Rollouts of each item, for pass@k.", "--rollouts-per-item", "-n", ge=1, le=MOST_ROLLOUTS
    )
    max_attempts: int = option(3, "Attempts of one rollout when the infrastructure fails it.", "--max-attempts", ge=1)
    max_cost: float | None = option(
        None, "Dollars: when its rollouts have cost this much, the rest of the run is cancelled.", "--max-cost", gt=0
    )
    priority: int = option(
        0, "Who gets a VM first among waiting runs: higher goes first.", "--priority", ge=-100, le=100
    )
    metric: str = option(
        "exact_match",
        "How answers are scored: exact_match, final_number, llm_judgement, ... (rollouts list metrics).",
        "--metric",
        "--evaluation-metric",
        panel="Scores",
    )
    judge_model: str | None = option(
        None, "The model behind llm_judgement; default: --model.", "--judge-model", panel="Scores"
    )
    evaluate_results: bool = option(
        True, "Score the results when all are in.", "--evaluate-results/--no-evaluate-results", panel="Scores"
    )
    save_results: bool = option(
        True,
        "Keep messages and trajectories; the results themselves are always kept.",
        "--save-results/--no-save-results",
    )
    output_dir: FolderPath = option(Path("results"), "Where runs' folders go.", "--output-dir")
    run_id: Annotated[str | None, safe_name(100)] = option(
        None, "The run's name; default: made from date, environment and random letters.", "--run-id"
    )

    @field_validator("model_roles", mode="before")
    @classmethod
    def _each_role(cls, values: Any) -> Any:
        return model_roles(values)

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """Every model that rollouts ask, the run's own first."""
        return (self.model, *map(self.role_model, self.model_roles))

    def model_role(self, name: str) -> ModelRole | None:
        """Returns the further model of a name; None if the run has none."""
        return next((role for role in self.model_roles if role.role == name), None)

    def role_model(self, role: ModelRole) -> ModelConfig:
        """Returns a further model; one that names no endpoint has the run's own."""
        model = role.model
        if model.base_url is not None or model.pool is not None:
            return model
        return model.model_copy(update={"base_url": self.model.base_url, "pool": self.model.pool})

    @field_validator("agent_options", mode="before")
    @classmethod
    def _agents_arguments(cls, value: Any) -> Any:
        return json_object(value)


def parse_config(values: dict[str, Any], *, where: str | None = None) -> RunConfig:
    """Validates nested values.

    Args:
        values: As in a run.yaml.
        where: The file they came from, for the error; None when they are command-line options, which are named by their
            spelling.

    Raises:
        UserError: Names the first wrong field, what is wrong with it and `where`.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        location = location_of(first, values)
        spelling, siblings = _spelled(location)
        path = ".".join(str(part) for part in location)
        place = f"{where}: {path}" if where and path else where or spelling or path
        raise UserError(f"{place}: {clause(first, siblings)}") from error


def _spelled(location: tuple[int | str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns the command-line spelling of the field at a path, empty when it has none, and the names beside it."""
    model: type[BaseModel] = RunConfig
    for part in location:
        field = model.model_fields.get(str(part))
        if field is None:
            break
        if spellings := field_spellings(field):
            return spellings[0].split("/")[0], tuple(model.model_fields)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return "", tuple(model.model_fields)
