#!/usr/bin/env bash
# From a fresh clone to a report: installs everything into .venv, rolls out the example tasks on desktops of this machine,
# then the light example items. Leaves nothing running. --light: only the light ones; other options go to submit.py.
# Needs Debian or Ubuntu with Python 3.11 and git; for desktops also root, or qemu-system-x86, qemu-utils, mmdebstrap and uidmap.
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

# Why virtual machines are emulated on this machine; nothing where the processor runs them.
why_emulated() {
    .venv/bin/python - <<'END'
import shutil
from vm_pool.providers.qemu.acceleration import why_no_kvm

print(why_no_kvm(shutil.which("qemu-system-x86_64")))
END
}

# Whether desktops of a provider come up here; else says why not.
ready() { # provider, options of submit.py
    local provider=$1 why image=(--profile core)
    shift
    if [ "$(id -u)" = 0 ]; then
        need mmdebstrap mmdebstrap "which builds the desktops' image" || true
        need dpkg-architecture dpkg-dev "with which that takes a third less time" || true
        if [ "$provider" = local ]; then
            need runc runc "which runs desktops in containers" || true
        else
            need qemu-system-x86_64 qemu-system-x86 "which runs virtual machines" || true
            need qemu-img qemu-utils "which makes their disks" || true
        fi
    fi
    if ! why=$(submit "$@" --provider "$provider" --dry-run 2>&1 >/dev/null); then
        echo "No desktops of the provider $provider here: ${why#error: }"
        return 1
    fi
    if [ "$provider" = qemu ]; then image+=(--disk); fi
    echo "The desktops' image, built once (a minute or two):"
    if ! .venv/bin/python scripts/build_guest.py "${image[@]}"; then
        echo "So no desktops of the provider $provider here."
        return 1
    fi
}

desktops() {
    local name provider=local tasks=examples/desktop amount=(--num-rollouts 4 --num-vms 2) how="4 at a time on 2 desktops" slow
    name=quickstart-$(date +%Y%m%d-%H%M%S)
    local options=(--env-mode osworld --rollouts-per-item 2 --sleep-after-execution 0.5 --run-id "$name")
    if ! ready local "${options[@]}" --data-path "$tasks" "$@"; then
        provider=qemu
        if ! ready qemu "${options[@]}" --data-path "$tasks" "$@"; then
            echo "So only the light environments are shown."
            echo
            return
        fi
        slow=$(why_emulated)
        if [ -n "$slow" ]; then
            echo "Virtual machines are emulated here, which is slow: $slow."
            echo "So one machine plays three tasks, one at a time, within about five minutes."
            tasks=$tasks/test_small.json amount=(--num-rollouts 1 --num-vms 1) how="one at a time"
        fi
    fi
    echo "Rolling out $tasks, each task with a script that solves it and one that does not: $how ($provider)"
    local code=0 run=results/$name
    submit "${options[@]}" "${amount[@]}" --data-path "$tasks" --provider "$provider" "$@" || code=$?
    [ -f "$run/evaluation.json" ] || return "$code"
    scores "$run"
    echo "Look at one: $(kept "$run/replace-butter/0" recording.mp4)"
    echo "         and $(kept "$run/replace-butter/0" 'step_*.png')"
    echo
    return "$code"
}

need bwrap bubblewrap "which isolates the code that models and tasks bring along"
$light || desktops "$@"
submit --data-path examples/items.jsonl --env-mode math --metric final_number --num-rollouts 4 "$@"
echo
echo "Each run has a folder under results/: report.md, and per item the conversation, the trajectory and, of desktops, screenshots and a recording."
echo "Next: set OPENAI_API_KEY (or OPENAI_BASE_URL), and give your own --data-path. README.md says how."
