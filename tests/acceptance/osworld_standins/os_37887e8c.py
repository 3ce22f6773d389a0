"""Old files compressed, new ones moved: a set-up that dates them, and a check that unpacks the old ones."""

from tests.acceptance.osworld_standins.made import DONE, Turn, turn, write

TASK = "37887e8c-da15-4192-923c-08fa390a176d"
SETUP = b"""#!/bin/bash
# Three files of thirty days ago and three of this month.
rm -rf /tmp/test_files
mkdir -p /tmp/test_files/old_files /tmp/test_files/new_files
cd /tmp/test_files || exit 1
for name in budget.csv minutes.txt sketch.svg letter.txt photos.lst plan.md; do
    printf 'This is %s.\\n' "$name" >"$name"
done
touch -d '30 days ago 1 hour ago' budget.csv minutes.txt sketch.svg
touch -d '29 days ago' letter.txt
touch -d '4 days ago' photos.lst
"""
EVALUATE = b"""#!/bin/bash
# The old ones must be in the one folder, compressed one by one or in an archive; the new ones in the other; else nothing.
unpacked=$(mktemp -d)
cd /tmp/test_files/old_files || exit 1
for packed in *; do
    case $packed in
        *.tar*|*.tgz|*.tbz2|*.txz) tar -xf "$packed" -C "$unpacked" ;;
        *.zip) unzip -q "$packed" -d "$unpacked" ;;
        *.gz) gzip -dc "$packed" >"$unpacked/${packed%.gz}" ;;
        *.bz2) bzip2 -dc "$packed" >"$unpacked/${packed%.bz2}" ;;
        *.xz) xz -dc "$packed" >"$unpacked/${packed%.xz}" ;;
        *) echo "$packed is not compressed."; touch "$unpacked/$packed, not compressed" ;;
    esac
done
has() {
    [ "$(find "$1" -type f -printf '%f\\n' | sort | tr '\\n' ' ')" = "$2 " ] &&
        find "$1" -type f | while read -r path; do grep -qx "This is ${path##*/}." "$path" || exit 1; done
}
if has "$unpacked" "budget.csv minutes.txt sketch.svg" && has ../new_files "letter.txt photos.lst plan.md" &&
    [ -z "$(find .. -maxdepth 1 -type f)" ]; then
    echo "SUCCESS: The task was completed correctly."
else
    echo "Some file is not where it should be."
fi
rm -r "$unpacked"
"""
FILES = {"setup.sh": SETUP, "eval_20250703.sh": EVALUATE}


def _entered(compress: str) -> list[Turn]:
    return [
        turn("I look at what there is.", write("cd /tmp/test_files; ls -l\n", pause=1), when="user@desktop:~$"),
        turn(
            "I compress the old ones.",
            write(f"find . -maxdepth 1 -type f -mtime +29 -exec {compress} {{}} +\n", pause=1),
            when="sketch.svg",
        ),
        turn("I put them away.", write("mv *.gz old_files\n", pause=1)),
        turn("I put the others away.", write("find . -maxdepth 1 -type f -exec mv -t new_files {} +\n", pause=1)),
        turn("I look again.", write("clear; ls *_files\n", pause=1)),
        DONE | {"when": "old_files:"},
    ]


RIGHT = _entered("gzip")
NEAR_MISS = _entered("gzip -k")
NEAR_MISS_IS = "the old ones are kept beside what was compressed, and moved with the new ones"
SHELL = True
