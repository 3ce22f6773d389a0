"""What exported traces' sampled tokens are as text: `token_texts.py CHECKPOINT ROWS OUTPUT`, with vLLM's packages.

OUTPUT gets for each trace a list with an object for each of its outputs: ``texts`` of its tokens, and the ids that one gets who
tokenises the whole text ``again``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer


def main() -> None:
    checkpoint, rows, output = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    with Path(output).open("w") as file:
        for line in Path(rows).read_text().splitlines():
            row = json.loads(line)
            found = []
            for one in row["outputs"]:
                ids = row["ids"][one["start"] : one["end"]]
                again = tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False)
                found.append({"texts": [tokenizer.decode([token]) for token in ids], "again": again})
            file.write(json.dumps(found) + "\n")


main()
