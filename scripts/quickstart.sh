#!/usr/bin/env bash
# From a fresh clone to a report: installs everything into .venv, rolls out the example tasks on desktops of this machine,
# then the light example items. Leaves nothing running. --light: only the light ones; other options go to submit.py.
# Needs Debian or Ubuntu with Python 3.11 and git; for desktops also root, or the right to use qemu.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install.sh

light=false
if [ "${1:-}" = "--light" ]; then
    light=true
    shift
fi
lock=requirements.lock
$light || lock=requirements-osworld.lock
if [ -f .venv/.installed-requirements-dev.lock ]; then lock=requirements-dev.lock; fi # A developer's has it all.
install "$lock"

need() { # command, package, what for
    command -v "$1" >/dev/null && return
    echo "Installing $2, $3 ..."
    apt_install "$2"
}

submit() { .venv/bin/python scripts/submit.py --embedded "$@"; }

# The newest file of that name below a folder of a run.
kept() { find "$1" -name "$2" | sort | tail -1; }

scores() {
    .venv/bin/python - "$1/evaluation.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
first, second = ("right", "wrong") if report["benchmark_info"].get("scripted") else ("first", "second")
print(f"{'score':31s} {first:>6s} {second:>6s}")
for row in report["evaluation_results"]:
    scores = {rollout["index"]: rollout["score"] for rollout in row["rollouts"]}
    print(f"  {row['domain'] + '/' + row['item_id']:30s}", *(f"{scores.get(index) or 0:5g}" for index in (0, 1)))
END
}

desktops() {
    local options=(--data-path examples/desktop --env-mode osworld --num-rollouts 4 --num-vms 2 --rollouts-per-item 2
        --sleep-after-execution 0.5 --run-id "quickstart-$(date +%Y%m%d-%H%M%S)")
    if [ "$(id -u)" = 0 ]; then
        need runc runc "which runs desktops in containers" || true
        need mmdebstrap mmdebstrap "which builds their image" || true
        need dpkg-architecture dpkg-dev "with which that takes a third less time" || true
    fi
    local candidate provider="" why
    for candidate in local qemu; do
        if why=$(submit "${options[@]}" --provider "$candidate" "$@" --dry-run 2>&1 >/dev/null); then
            provider=$candidate
            break
        fi
        echo "No desktops of the provider $candidate here: ${why#error: }"
    done
    if [ -z "$provider" ]; then
        echo "So only the light environments are shown."
        return
    fi
    if [ "$provider" = local ]; then
        echo "The desktops' image, built once (about a minute):"
        .venv/bin/python scripts/build_guest.py --profile core
    fi
    echo "Rolling out examples/desktop, each task with a script that solves it and one that does not: 4 at a time on 2 desktops ($provider)"
    local code=0 run=results/${options[-1]}
    submit "${options[@]}" --provider "$provider" "$@" || code=$?
    [ -f "$run/evaluation.json" ] || return "$code"
    scores "$run"
    echo "Look at one: $(kept "$run/replace-butter/0" recording.mp4)"
    echo "         and $(kept "$run/replace-butter/0" 'step_*.png')"
    echo
    return "$code"
}

$light || desktops "$@"
need bwrap bubblewrap "which isolates the code that models write"
submit --data-path examples/items.jsonl --env-mode math --metric numeric_match --num-rollouts 4 "$@"
echo
echo "Each run has a folder under results/: report.md, and per item the conversation, the trajectory and, of desktops, screenshots and a recording."
echo "Next: set OPENAI_API_KEY (or OPENAI_BASE_URL), and give your own --data-path. README.md says how."
