"""Makes a tiny Qwen2 model with random weights and no chat template, with its own packages: `tiny_text_model.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

END = "<|endoftext|>"


def main() -> None:
    folder = Path(sys.argv[1])
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(["any text"], trainers.BpeTrainer(special_tokens=[END], initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END)
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = list(range(len(fast)))  # a reply has one token
    model.save_pretrained(folder)


main()
