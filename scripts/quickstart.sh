#!/usr/bin/env bash
# From a fresh clone to a report: installs everything into .venv and runs the example items on this machine alone.
# Needs Debian or Ubuntu with Python 3.11 and git. Leaves nothing running.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install.sh

install requirements.lock
if ! command -v bwrap >/dev/null; then
    echo "Installing bubblewrap, which isolates the code that models write ..."
    apt_install bubblewrap
fi

.venv/bin/python scripts/submit.py --embedded --data-path examples/items.jsonl --env-mode math \
    --metric numeric_match --num-rollouts 4 "$@"
echo
echo "Each run has a folder under results/: report.md, and per item the conversation and the trajectory."
echo "Next: set OPENAI_API_KEY (or OPENAI_BASE_URL), and give your own --data-path. README.md says how."
