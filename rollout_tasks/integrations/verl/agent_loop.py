"""verl's agent loop: one call of `run` is one rollout on the workers, with verl's engine as its model.

verl loads it by its name in the YAML of ``actor_rollout_ref.rollout.agent.agent_loop_config_path``.
"""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

from rollout_tasks.errors import UserError
from rollout_tasks.integrations.verl.run_options import item_of_row, run_options
from rollout_tasks.integrations.verl.single_rollout import RolloutLost, roll_out
from rollout_tasks.integrations.verl.trainer_model import MODEL_NAME, Lengths, SampledOutput, ToolCall, TrainerModel
from rollout_tasks.training.rewarded_traces import RewardedRollout
from rollout_tasks.training.token_rows import check_padded, token_row
from rollout_tasks.trajectories.sampled_calls import read_picture
from rollout_tasks.trajectories.traces import Trace

_HOURS = 3600.0
_CONTEXT = "actor_rollout_ref.rollout"


class RolloutAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Rolls out a row of verl's dataset: its column ``item`` or ``item_id`` names the item."""

    def __init__(
        self,
        *args: Any,
        run: Mapping[str, Any],
        host: str = "127.0.0.1",
        wait_seconds: float = 24 * _HOURS,
        **options: Any,
    ) -> None:
        """Called by verl, with what the YAML has beside the name.

        Args:
            *args: verl's.
            run: The options of a run, as in a run.yaml.
            host: The address at which the workers reach this machine; ``node``: that of its Ray node.
            wait_seconds: The longest wait for one rollout, desktops and workers included.
            **options: verl's.

        Raises:
            UserError: An option is wrong, or is verl's.
        """
        super().__init__(*args, **options)
        values = OmegaConf.to_container(run, resolve=True) if OmegaConf.is_config(run) else dict(run)
        self._run_options = run_options(values)
        self._host = _node_address() if host == "node" else host
        self._wait_seconds = float(wait_seconds)
        if self.rollout_config.get("enable_rollout_routing_replay", False):
            raise UserError(
                f"{_CONTEXT}.enable_rollout_routing_replay: experts' choices are not recorded: switch it off"
            )

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Rolls out one row.

        Args:
            sampling_params: How to sample.
            **row: The row of the dataset. verl's transfer-queue worker adds ``session_id``, and takes a list.

        Returns:
            One output for each trace, all with the rollout's reward; the one trace itself for a worker that takes no list.

        Raises:
            BenchmarkError: The row's item, or the metric, is wrong.
            RolloutLost: The infrastructure lost the rollout: it has no reward, and verl counts it as a failure.
            UserError: An option or a service cannot be used, or the worker does not take what there is.
        """
        item = item_of_row(row, self._run_options)
        rollout_config = self.rollout_config
        context = rollout_config.get("max_model_len") or rollout_config.prompt_length + rollout_config.response_length
        lengths = Lengths(context, rollout_config.response_length)
        model = TrainerModel(self.server_manager, _VerlChatFormat(self), sampling_params, lengths)
        config = self._run_options.model_copy(update={"run_id": f"verl-{uuid.uuid4().hex}"})
        rollout = await roll_out(
            config, item, model.complete, model=MODEL_NAME, host=self._host, seconds=self._wait_seconds
        )
        takes_all = "session_id" in row
        if not takes_all:
            rows = [token_row(trace) for trace in rollout.traces]
            check_padded(rows, rollout_config.prompt_length, rollout_config.response_length)
        outputs = [await self._output(rollout, trace, model) for trace in rollout.traces]
        for output in outputs:
            output.extra_fields["run_id"] = config.run_id
        return outputs if takes_all else outputs[0]

    async def _output(self, rollout: RewardedRollout, trace: Trace, model: TrainerModel) -> AgentLoopOutput:
        """Returns a trace with what verl wants to know about it."""
        try:
            sampled = model.outputs_of(trace)
        except ValueError as error:
            raise RolloutLost(f"item {rollout.item_id}: {error}") from error
        row = token_row(trace)
        pictures = [rollout.pictures[name] for name in trace.pictures]
        return AgentLoopOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.response_ids,
            response_mask=row.response_mask,
            response_logprobs=row.response_logprobs,
            multi_modal_data={"images": await self._images(pictures)} if pictures else {},
            mm_processor_kwargs=self._get_mm_processor_kwargs(),
            reward_score=rollout.reward,
            num_turns=2 * len(trace.outputs),
            metrics=_metrics(sampled),
            extra_fields={
                **_steps(sampled),
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": {},
                "failure_class": rollout.failure_class,
            },
        )

    async def _images(self, files: Sequence[Path]) -> list[Image.Image]:
        """Returns pictures of a record as the engine was shown them."""

        def read(file: Path) -> Image.Image:
            return Image.open(io.BytesIO(read_picture(file))).convert("RGB")

        shown = [await asyncio.to_thread(read, file) for file in files]
        return await _images_in(self, [{"role": "user", "content": [{"type": "image", "image": one} for one in shown]}])


class _VerlChatFormat:
    """verl's tokenizer, processor and parsers as a `ChatFormat`."""

    def __init__(self, loop: RolloutAgentLoop) -> None:
        self._loop = loop
        self._parser = ToolParser.get_tool_parser(loop.rollout_config.multi_turn.format, loop.tokenizer)
        self.builder = loop.continuous_token_builder
        self.sees_pictures = loop.processor is not None and self.builder.supports_multimodal()
        self.processor_options = loop._get_mm_processor_kwargs()
        ends = loop.tokenizer.eos_token_id
        self.end_ids: Collection[int] = frozenset(ends if isinstance(ends, list | tuple) else [ends])

    async def pictures(self, messages: list[dict[str, Any]]) -> list[Any]:
        """See `ChatFormat`."""
        return await _images_in(self._loop, messages)

    async def read(self, ids: list[int], tools: Sequence[Mapping[str, Any]]) -> tuple[str, Sequence[ToolCall]]:
        """See `ChatFormat`."""
        tokenizer = self._loop.tokenizer
        if tools:
            known = [OpenAIFunctionToolSchema.model_validate(tool) for tool in tools]
            content, calls = await self._parser.extract_tool_calls(ids, known)
            if calls:
                for special in tokenizer.all_special_tokens:
                    content = content.replace(special, "")
                return content, calls
        return await asyncio.to_thread(tokenizer.decode, ids, skip_special_tokens=True), ()

    def stop_ids(self, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """See `ChatFormat`."""
        return list(self._parser.stop_token_ids) if tools else []


async def _images_in(loop: RolloutAgentLoop, messages: list[dict[str, Any]]) -> list[Any]:
    """Returns the pictures of messages as verl's dataset class prepares them."""
    found = await loop.process_multi_modal_info(messages)
    return list(found.get("images") or ())


def _metrics(sampled: Sequence[SampledOutput]) -> AgentLoopMetrics:
    preempted = [one.preempted for one in sampled if one.preempted is not None]
    return AgentLoopMetrics(
        generate_sequences=sum(one.seconds for one in sampled),
        num_preempted=sum(preempted) if preempted else -1,
    )


def _steps(sampled: Sequence[SampledOutput]) -> dict[str, int | None]:
    """Returns the training steps of the oldest and the newest weights, by which verl finds what is too old."""
    first = [one.first_step for one in sampled if one.first_step is not None]
    last = [one.last_step for one in sampled if one.last_step is not None]
    return {"min_global_steps": min(first, default=None), "max_global_steps": max(last, default=None)}


def _node_address() -> str:
    import ray  # here, because few loops ask for it

    address: str = ray.util.get_node_ip_address()
    return address
