"""Engines behind verl's client: one that says what it is told to say, and vLLM's own server."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from typing import Any

import httpx
from omegaconf import DictConfig
from verl.utils import hf_processor, hf_tokenizer
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.utils import get_vision_placeholder_token_ids, qwen2_5_vl_dedup_image_tokens

STEP = 7


class SayingClient(LLMServerClient):
    """Presses a number twice, and ends: every other rollout the right one. Where no tools are on offer, it says 42 or 41.

    Each call of a rollout is said to have newer weights.
    """

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        self._calls: Counter[str] = Counter()
        self._begun: dict[bool, list[str]] = {True: [], False: []}
        """The rollouts with doors, and the others."""

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        tokenizer = hf_tokenizer(self.config.actor_rollout_ref.model.path)
        ids = asked["prompt_ids"]
        image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        runs = sum(one == image and before != image for before, one in zip([0, *ids], ids, strict=False))
        assert runs == len(asked["image_data"] or ()), f"{runs} places, {len(asked['image_data'] or ())} pictures"
        self._calls[request_id] += 1
        said = self._say(request_id, tokenizer.decode(ids))
        output = tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)
        step = STEP + self._calls[request_id]
        return TokenOutput(
            token_ids=output,
            log_probs=[-0.125 * (1 + place % 4) for place in range(len(output))],
            stop_reason="completed",
            extra_fields={"global_steps": step, "min_global_steps": step, "max_global_steps": step},
        )

    def _say(self, request_id: str, prompt: str) -> str:
        has_doors = '"press"' in prompt
        begun = self._begun[has_doors]
        if request_id not in begun:
            begun.append(request_id)
        right = begun.index(request_id) % 2 == 0
        if not has_doors:
            return f"So it is {42 if right else 41}."
        if self._calls[request_id] > 2:
            return "It is done."
        press = {"name": "press", "arguments": {"number": 1 if right else 2}}
        return f"I press.<tool_call>\n{json.dumps(press)}\n</tool_call>"


class VllmClient(LLMServerClient):
    """Asks a server of vLLM in token ids, as verl's own asks vLLM: pictures beside a prompt with one place for each."""

    def __init__(self, config: DictConfig, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        del request_id
        processor = hf_processor(self.config.actor_rollout_ref.model.path)
        given = asked["sampling_params"]
        banned = dict.fromkeys(map(str, get_vision_placeholder_token_ids(processor)), -100.0)
        names = ("temperature", "top_p", "top_k", "repetition_penalty", "max_tokens")
        body = {
            "token_ids": qwen2_5_vl_dedup_image_tokens(asked["prompt_ids"], processor),
            "content_parts": [{"type": "image_url", "url": url_of(one)} for one in asked["image_data"] or ()] or None,
            "sampling_params": {**{name: given[name] for name in names}, "logprobs": 0, "logit_bias": banned},
            "return_token_ids": True,
        }
        async with httpx.AsyncClient(timeout=300) as client:
            answer = await client.post(f"{self._url}/inference/v1/generate", json=body)
        assert answer.is_success, answer.text
        said = answer.json()
        assert said["prompt_token_ids"] == asked["prompt_ids"], "vLLM expands pictures as verl's processor does"
        choice = said["choices"][0]
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=[one["logprob"] for one in choice["logprobs"]["content"]],
            stop_reason="completed",
            extra_fields={"global_steps": STEP, "min_global_steps": STEP, "max_global_steps": STEP},
        )


def url_of(picture: Any) -> str:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
