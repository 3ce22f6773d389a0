"""Makes a tiny Qwen2-VL model with random weights, for vLLM, with its own packages: `tiny_vision_model.py FOLDER SEED`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
)

END, BEGIN_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
SPECIAL = [END, BEGIN_TURN, END_TURN, VISION_START, VISION_END, IMAGE, VIDEO]
PICTURE = f"{VISION_START}{IMAGE}{VISION_END}"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% else %}" + PICTURE + "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator(["any text"], trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END_TURN, pad_token=END)
    fast.chat_template = CHAT
    return fast


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    fast = tokenizer()
    fast.save_pretrained(folder)
    token = fast.convert_tokens_to_ids
    torch.manual_seed(seed)
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(fast),
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 4096,
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
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    Qwen2VLImageProcessor(max_pixels=200_704).save_pretrained(folder)


main()
