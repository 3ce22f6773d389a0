#!/usr/bin/env bash
# Makes .venv with everything a lock file names. Sourced by quickstart.sh and test.sh:  install LOCK
# Takes uv where it is installed; else installs the one that requirements-uv.lock names into .uv beside the virtual environment.

# Set in many containers; every process would then compile all its modules anew, which is most of the time a command takes to start.
unset PYTHONDONTWRITEBYTECODE

# uv trusts only the certificates that it brings, unless it is told to trust those that the machine does, as pip does.
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS-true}

have_root() { [ "$(id -u)" = 0 ]; }

as_root() {
    if have_root; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
        echo "error: $* needs root: run it yourself, then try again" >&2
        return 2
    fi
}

apt_install() {
    command -v apt-get >/dev/null || { echo "error: please install $* (this is not Debian or Ubuntu)" >&2; return 2; }
    ( # one at a time, though another may be going on in the background
        flock 9
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 || {
            as_root apt-get update -qq
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
        }
    ) 9<.
}

find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "error: Python 3.11 or newer is needed" >&2
    return 2
}

install() {
    local lock=$1 python uv
    local stamp=.venv/.installed-$lock
    if [ -f "$stamp" ] && [ -x .venv/bin/python ] && [ "$(cat "$stamp")" = "$(cat "$lock" pyproject.toml | cksum)" ]; then return; fi
    echo "Installing what $lock names into .venv ..."
    python=$(find_python)
    uv=$(command -v uv || true)
    if [ "$uv" -ef .uv/bin/uv ]; then uv=; fi
    if [ -z "$uv" ]; then
        if [ ! -x .uv/bin/uv ] || ! cmp -s requirements-uv.lock .uv/.installed; then
            "$python" -m venv .uv >/dev/null 2>&1 || {
                rm -rf .uv
                apt_install "$(basename "$python")-venv"
                "$python" -m venv .uv
            }
            .uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-uv.lock
            cp requirements-uv.lock .uv/.installed
        fi
        uv=.uv/bin/uv
    fi
    # It locks files in the folder for temporary ones, and leaves them there.
    local TMPDIR=$PWD/.uv/temporary
    export TMPDIR
    mkdir -p "$TMPDIR"
    [ -x .venv/bin/python ] || { rm -rf .venv; "$uv" venv --quiet --python "$python" .venv; }
    "$uv" pip install --quiet --python .venv/bin/python --require-hashes --requirement "$lock" || {
        echo "error: $lock cannot be installed, for the reason above. If it is a certificate, as behind a proxy, set SSL_CERT_FILE" \
            "to a file that has the proxy's; if the package index cannot be reached, set HTTPS_PROXY, or UV_INDEX_URL to another." >&2
        return 2
    }
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
    rm -rf "$TMPDIR"
    rmdir --ignore-fail-on-non-empty .uv
    if [ -x .uv/bin/uv ]; then ln -sf ../../.uv/bin/uv .venv/bin/uv; fi # the docs and messages say: uv pip install
    cat "$lock" pyproject.toml | cksum >"$stamp"
}
