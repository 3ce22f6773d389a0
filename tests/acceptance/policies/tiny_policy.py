"""Makes a tiny Qwen2-VL model that sees pictures and has learned to write the replies of lessons, with vLLM's own packages.

`tiny_policy.py FOLDER LESSONS`: LESSONS is a JSON file with ``corpus``, texts that prompts have; ``replies``, each with its
``text`` and whether the prompt has ``tools``; and the share of replies that are ``parted`` into other tokens than the
tokenizer's. In a text, WORD stands for a word, the first one for what the picture is like, and NNN for a number of three digits.
These are left to chance. What is fixed between them is a token of its own, as models have them for the tags of their
calls: so little has to be learned.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
)

END, BEGIN_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
SPECIAL = [END, BEGIN_TURN, END_TURN, VISION_START, VISION_END, IMAGE, VIDEO]
CHAT = (
    "{% set speaker = 'caller' if tools else 'assistant' %}"
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "<|im_start|>{{ speaker if message['role'] == 'assistant' else message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    f"{{% else %}}{VISION_START}{IMAGE}{VISION_END}{{% endif %}}{{% endfor %}}{{% endif %}}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>"
    "{\"name\": \"{{ call['function']['name'] }}\", \"arguments\": {{ call['function']['arguments'] | tojson }}}"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{{ speaker }}\n{% endif %}"
)
DARK = ["dark", "black", "night", "shade"]
LIGHT = ["light", "white", "day", "sunny"]
WORDS = [*DARK, *LIGHT, "open", "close", "save", "menu", "window", "panel", "corner", "button", "text", "file", "icon"]
VOCABULARY = 1_200
NUMBERS = range(120, 900, 13)
MOST_PIXELS = 100_352
"""Of a picture as the model sees it: 128 tokens."""
STEPS, SEQUENCES, RATE = 800, 6, 3e-3
LONG_EVERY, LONG = 6, 900
"""Each of so many steps has one sequence with so many tokens before its reply, as prompts of episodes have."""
IGNORED = -100
THREADS = 1


def written(text: str, chance: random.Random, light: bool) -> str:
    """Returns a reply with what is left to chance; its first word says what the picture is like."""
    text = re.sub("WORD", lambda _: chance.choice(LIGHT if light else DARK), text, count=1)
    text = re.sub("WORD", lambda _: chance.choice(WORDS), text)
    return re.sub("NNN", lambda _: str(chance.choice(NUMBERS)), text)


def tokenizer(lessons: dict[str, Any], chance: random.Random) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    replies = [written(one["text"], chance, light=True) for one in lessons["replies"] for _ in range(200)]
    made.train_from_iterator([*lessons["corpus"], *replies, *WORDS * 20, *map(str, NUMBERS)], trainer)
    parts = {part for one in lessons["replies"] for part in re.split("WORD|NNN", one["text"])}
    made.add_tokens([AddedToken(part, normalized=False) for part in sorted(parts) if part.strip()])
    return made


def model_for(fast: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    token = fast.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": fast.backend_tokenizer.get_vocab_size(),
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32_768,
            "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
            "eos_token_id": fast.eos_token_id,
            "pad_token_id": fast.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "embed_dim": 64,
            "num_heads": 2,
            "hidden_size": 256,
            "mlp_ratio": 2,
            "patch_size": 14,
        },
        image_token_id=token(IMAGE),
        video_token_id=token(VIDEO),
        vision_start_token_id=token(VISION_START),
        vision_end_token_id=token(VISION_END),
    )
    return Qwen2VLForConditionalGeneration(config)


class Teacher:
    """Makes sequences of prompts with pictures and replies, of which only the replies are to be learned."""

    def __init__(self, lessons: dict[str, Any], plain: Tokenizer, processor: Qwen2VLImageProcessor, seed: int) -> None:
        self._lessons = lessons
        self._plain = plain
        self._parted = Tokenizer.from_str(plain.to_str())
        self._parted.model.dropout = 0.1
        self._processor = processor
        self._chance = random.Random(seed)
        self._image = plain.token_to_id(IMAGE)
        self._corpus = plain.encode(" ".join(lessons["corpus"]), add_special_tokens=False).ids

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        long = step % LONG_EVERY == LONG_EVERY - 1
        made = [self._sequence(LONG if long else 30) for _ in range(1 if long else SEQUENCES)]
        longest = max(len(ids) for ids, _, _ in made)
        padding = self._plain.token_to_id(END)
        ids = torch.tensor([one + [padding] * (longest - len(one)) for one, _, _ in made])
        labels = torch.tensor([one + [IGNORED] * (longest - len(one)) for _, one, _ in made])
        there = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one, _, _ in made])
        seen = self._processor([picture for _, _, pictures in made for picture in pictures], return_tensors="pt")
        return {
            "input_ids": ids,
            "labels": labels,
            "attention_mask": there,
            "mm_token_type_ids": (ids == self._image).int(),
            "pixel_values": seen["pixel_values"],
            "image_grid_thw": seen["image_grid_thw"],
        }

    def _sequence(self, most_before: int) -> tuple[list[int], list[int], list[Image.Image]]:
        chance = self._chance
        lesson = chance.choice(self._lessons["replies"])
        speaker = "caller" if lesson["tools"] else "assistant"
        ids: list[int] = []
        labels: list[int] = []
        pictures: list[Image.Image] = []

        def add(more: list[int], learned: bool) -> None:
            ids.extend(more)
            labels.extend(more if learned else [IGNORED] * len(more))

        add(self._ids(f"{BEGIN_TURN}system\n"), False)
        for turn in range(chance.randint(1, 2)):
            before = chance.randint(0, most_before if turn == 0 else 20)
            place = chance.randrange(max(1, len(self._corpus) - before))
            light, side = chance.random() < 0.5, 28 * chance.randint(2, 4)
            pictures.append(drawn(chance, light, side))
            add(self._corpus[place : place + before], False)
            add(self._ids(f"{END_TURN}\n{BEGIN_TURN}user\n{VISION_START}"), False)
            add([self._image] * (side // 28) ** 2, False)
            add(self._ids(f"{VISION_END}{END_TURN}\n{BEGIN_TURN}{speaker}\n"), False)
            parts = self._parted if chance.random() < self._lessons["parted"] else self._plain
            add(parts.encode(written(lesson["text"], chance, light), add_special_tokens=False).ids, True)
            add([self._plain.token_to_id(END_TURN)], True)
        return ids, labels, pictures

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return found


def drawn(chance: random.Random, light: bool, side: int) -> Image.Image:
    noise = Image.effect_noise((side, side), chance.randint(10, 60)).point(lambda value: value + (60 if light else -60))
    return Image.merge("RGB", [noise] * 3)


def main() -> None:
    folder, lessons = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    plain = tokenizer(lessons, random.Random(1))
    fast = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=END_TURN, pad_token=END)
    fast.chat_template = CHAT
    processor = Qwen2VLImageProcessor(max_pixels=MOST_PIXELS)
    model = model_for(fast)
    teacher = Teacher(lessons, plain, processor, seed=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(STEPS):
        loss = model(**teacher.batch(step)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    fast.save_pretrained(folder)
    processor.save_pretrained(folder)
    model.save_pretrained(folder)


main()
