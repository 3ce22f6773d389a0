"""A file copied into three folders: a set-up that makes them, one with a file of its own, and a check of what each has."""

from tests.acceptance.osworld_standins.made import DONE, Turn, turn, write

TASK = "6f56bf42-85b8-4fbb-8e06-6c44960184ba"
SETUP = b"""#!/bin/bash
# A file, and folders that do not have it.
rm -rf file1 dir1 dir2 dir3
mkdir dir1 dir2 dir3
printf 'opening hours\\nMonday 9 to 5\\nTuesday 9 to 7\\n' >file1
echo "closed on Sundays" >dir2/notes.txt
"""
EVALUATE = b"""#!/bin/bash
# One line a folder; the copies must have what the file has, which must still be there.
for folder in dir1 dir2 dir3; do
    if cmp -s file1 "$folder/file1"; then
        echo "Success: file1 exists in $folder."
    else
        echo "$folder has no copy of file1."
    fi
done
"""
FILES = {"setup.sh": SETUP, "eval.sh": EVALUATE}


def _entered(command: str) -> list[Turn]:
    return [
        turn("I look at what there is.", write("ls\n", pause=1), when="user@desktop:~$"),
        turn("I copy it.", write(f"{command}\n", pause=1), when="dir3"),
        turn("I look again.", write("ls dir?\n", pause=1)),
        DONE | {"when": "dir1:"},
    ]


RIGHT = _entered("for folder in dir1 dir2 dir3; do cp file1 $folder; done")
NEAR_MISS = _entered("cp file1 dir1 dir2 dir3")
NEAR_MISS_IS = "one command for all: only the last folder gets it"
SHELL = True
