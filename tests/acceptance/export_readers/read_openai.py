"""Writes the rows of a file of conversations as Hugging Face's datasets reads them, one per line. Runs where that is installed."""

import json
import sys
from pathlib import Path

from datasets import Features, Json, List, Value, load_dataset

file, cache, output = sys.argv[1:]
features = Features({"messages": List(Json()), "tools": List(Json()), "parallel_tool_calls": Value("bool")})
with Path(output).open("w") as lines:
    for row in load_dataset("json", data_files=file, features=features, split="train", cache_dir=cache):
        print(json.dumps({name: value for name, value in row.items() if value is not None}), file=lines)
