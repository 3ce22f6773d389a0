#!/usr/bin/env bash
# Installs what the tests need and runs them: ./scripts/test.sh [--all] [pytest options]
# --all also runs those marked slow.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install.sh

selection=(-m "not slow")
if [ "${1:-}" = "--all" ]; then
    selection=()
    shift
fi

install requirements-dev.lock
command -v bwrap >/dev/null || apt_install bubblewrap

.venv/bin/ruff check .
.venv/bin/ruff format --check --quiet .
.venv/bin/mypy
exec .venv/bin/python -m pytest "${selection[@]}" "$@"
