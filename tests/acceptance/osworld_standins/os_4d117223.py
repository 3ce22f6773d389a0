"""Regular files' permissions below the current folder: a set-up that makes a tree of them, and a check by find."""

from tests.acceptance.osworld_standins.made import DONE, Turn, turn, write

TASK = "4d117223-a354-47fb-8b45-62ab1390a95f"
SETUP = b"""#!/bin/bash
# A tree of files and folders with permissions of many kinds.
rm -rf testDir
mkdir -p testDir/notes testDir/scripts/old testDir/data/raw/2023
cd testDir || exit 1
echo "Read me first." >readme.txt
echo "milk, bread, apples" >notes/shopping.txt
echo "call the plumber" >notes/to_do.txt
printf '#!/bin/bash\\necho backup\\n' >scripts/backup.sh
printf '#!/bin/bash\\necho old\\n' >scripts/old/backup.sh
printf 'day,rain\\n1,4.5\\n2,0.0\\n' >data/rain.csv
printf '7 9 4\\n' >data/raw/2023/readings.dat
printf 'x' >"data/raw/a name with spaces.bin"
chmod 600 readme.txt notes/to_do.txt
chmod 666 notes/shopping.txt
chmod 755 scripts/backup.sh scripts/old/backup.sh
chmod 640 data/rain.csv
chmod 777 data/raw/2023/readings.dat
chmod 400 "data/raw/a name with spaces.bin"
"""
EVALUATE = b"""#!/bin/bash
# Regular files must have 644, and there must be eight of them.
all=$(find testDir -type f | wc -l)
right=$(find testDir -type f -perm 644 | wc -l)
if [ "$all" -eq 8 ] && [ "$right" -eq "$all" ]; then
    echo "All files have the correct permissions."
else
    echo "$right of $all files have the correct permissions."
fi
"""
FILES = {"setup.sh": SETUP, "eval.sh": EVALUATE}


def entered(command: str) -> list[Turn]:
    """A command in the terminal that the task opens, and a look at what came of it."""
    return [
        turn("I look at what there is.", write("ls -lR\n", pause=1), when="testDir"),
        turn("I change it.", write(f"{command}\n", pause=1)),
        turn("I look again.", write("clear; ls -lR\n", pause=1)),
        DONE,
    ]


RIGHT = entered("find . -type f -exec chmod 644 {} +")
NEAR_MISS = entered("chmod 644 *.* */*.*")
NEAR_MISS_IS = "only the first two levels are changed"
SHELL = True
