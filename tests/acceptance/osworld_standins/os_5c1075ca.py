"""Notebooks that failed, copied with their folders: a set-up that makes a tree of them, and a check by diff."""

from tests.acceptance.osworld_standins.made import DONE, Turn, turn, write

TASK = "5c1075ca-bb34-46a3-a7a0-029bd7463e79"
SETUP = b"""#!/bin/bash
# Notebooks at every depth, two of one name; a folder has a space in its name, and one notebook the word elsewhere.
rm -rf test_environment
mkdir -p "test_environment/2023/first try" test_environment/2024/spring test_environment/drafts
cd test_environment || exit 1
for name in report_failed 2023/load_failed "2023/first try/load_failed" 2024/spring/train_failed \\
    report 2023/load 2024/spring/train drafts/failed_idea; do
    printf '{"cells": [], "metadata": {"title": "%s"}, "nbformat": 4, "nbformat_minor": 5}\\n' "$name" >"$name.ipynb"
done
echo "tried again on Friday" >2024/spring/train_failed.txt
"""
EVALUATE = b"""#!/bin/bash
# The copies' places and contents must be the originals', and there must be nothing else.
cd test_environment || exit 1
wanted=$(mktemp -d)
find . -path ./fails -prune -o -name '*failed.ipynb' -exec cp --parents {} "$wanted" \\;
if diff -r "$wanted" fails; then
    echo "Evaluation successful."
else
    echo "The copies are not as they should be."
fi
rm -r "$wanted"
"""
FILES = {"setup.sh": SETUP, "eval.sh": EVALUATE}


def _entered(copy: str) -> list[Turn]:
    return [
        turn("I look at what there is.", write("ls -R\n", pause=1), when="test_environment$"),
        turn("I make the folder.", write("mkdir fails\n", pause=1), when="train_failed.ipynb"),
        turn(
            "I copy them.", write(f"find . -path ./fails -prune -o -name '*failed.ipynb' -exec {copy} \\;\n", pause=1)
        ),
        turn("I look again.", write("clear; find fails\n", pause=1)),
        DONE | {"when": "fails/"},
    ]


RIGHT = _entered("cp --parents {} fails")
NEAR_MISS = _entered("cp {} fails")
NEAR_MISS_IS = "all in one folder, where one replaces another of its name"
SHELL = True
