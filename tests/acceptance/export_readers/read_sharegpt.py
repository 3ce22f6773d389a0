"""Writes the rows of a data set as LLaMA-Factory's reader aligns them, one per line, with their calls as a template writes them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from llamafactory.data.loader import _load_single_dataset
from llamafactory.data.parser import get_dataset_list
from llamafactory.data.template import TEMPLATES

folder, cache, output = sys.argv[1:]
data = SimpleNamespace(
    dataset_dir=folder,
    media_dir=folder,
    streaming=False,
    max_samples=None,
    overwrite_cache=True,
    preprocessing_num_workers=1,
)
model = SimpleNamespace(cache_dir=cache, hf_hub_token=None)
training = SimpleNamespace(local_process_index=0, dataloader_num_workers=0)
template = TEMPLATES["qwen2_vl"]
[attributes] = get_dataset_list(["rollouts"], folder)
with Path(output).open("w") as lines:
    for row in _load_single_dataset(attributes, model, data, training):
        turns = [*row["_prompt"], *row["_response"]]
        template.mm_plugin._validate_messages(turns, row["_images"] or [], [], [])
        row["_calls"] = [
            template.format_function.apply(
                content=turn["content"], thought_words=template.thought_words, tool_call_words=template.tool_call_words
            )[0]
            for turn in turns
            if turn["role"] == "function"
        ]
        row["_tools_text"] = template.format_tools.apply(content=row["_tools"])[0] if row["_tools"] else ""
        print(json.dumps(row), file=lines)
