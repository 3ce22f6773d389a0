"""One training step of TRL's GRPO whose environment is the server's: ``python trl_client.py URL TOKEN FOLDER``.

The model is tiny and random, and its replies are scripted: it calls the tool until the work is done. Prints the rewards as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from datasets import Dataset
from openenv.core import GenericEnvClient
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers import decoders as byte_decoders
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

URL, TOKEN, FOLDER = sys.argv[1:4]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
CALL = '<tool_call>\n{"name": "work", "arguments": {}}\n</tool_call><|im_end|>'
OVER = "All is done.<|im_end|>"
rewards: list[float | None] = []


class Desktop:
    """What TRL calls an environment: its public methods are the tools."""

    def __init__(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self._client = GenericEnvClient(base_url=URL, headers=headers, message_timeout_s=300).sync()
        self._reward: float | None = None

    def reset(self, item_id: str, **_: Any) -> str:
        self._reward = None
        return str(self._client.reset(item_id=item_id).observation["text"])

    def work(self) -> str:
        """Does a share of the work.

        Returns:
            How many steps are left.
        """
        seen = self._client.step({"name": "work", "arguments": {}})
        self._reward = seen.reward if seen.done else None
        return str(seen.observation["response"])

    def get_reward(self) -> float | None:
        rewards.append(self._reward)
        return self._reward


def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = byte_decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.add_special_tokens({"additional_special_tokens": SPECIAL[:3]})
    wrapped.add_tokens(SPECIAL[3:])
    wrapped.chat_template = qwen3_chat_template
    return wrapped


class ScriptedModel(Qwen3ForCausalLM):
    """Generates what the script says, whatever its weights are."""

    def generate(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        texts = [words.decode(row) for row in input_ids]
        replies = [words.encode(OVER if "0 steps left" in text else CALL) for text in texts]
        longest = max(map(len, replies))
        padded = [[*reply, *[words.pad_token_id] * (longest - len(reply))] for reply in replies]
        return torch.cat([input_ids, torch.tensor(padded, device=input_ids.device)], dim=1)


words = tokenizer()
shape = Qwen3Config(
    vocab_size=len(words),
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    eos_token_id=words.eos_token_id,
    pad_token_id=words.pad_token_id,
)
question = {"prompt": [{"role": "user", "content": "Do the work."}], "item_id": "two"}
trainer = GRPOTrainer(
    model=ScriptedModel(shape),
    processing_class=words,
    environment_factory=Desktop,
    train_dataset=Dataset.from_list([question]),
    args=GRPOConfig(
        output_dir=FOLDER,
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=2000,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    ),
)
trainer.train()
print(json.dumps({"rewards": rewards, "steps": trainer.state.global_step}))
