#!/usr/bin/env bash
# Installs what the tests need and runs them: ./scripts/test.sh [--all] [pytest options]
# --all also runs those marked slow.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install.sh

all=
if [ "${1:-}" = "--all" ]; then
    all=yes
    shift
fi

packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
command -v bwrap >/dev/null || packages+=(bubblewrap)
{ command -v mmdebstrap && command -v dpkg-architecture; } >/dev/null || packages+=(mmdebstrap dpkg-dev)
command -v qemu-system-x86_64 >/dev/null && command -v qemu-img >/dev/null || packages+=(qemu-system-x86 qemu-utils)
makes_disks() { # a boot loader's first sector is in a package that syslinux only recommends
    command -v mkfs.vfat && command -v mcopy && command -v sfdisk && command -v syslinux &&
        [ -f /usr/lib/syslinux/mbr/mbr.bin ] && [ -f /usr/share/OVMF/OVMF_CODE_4M.fd ]
}
[ -z "$all" ] || makes_disks >/dev/null || packages+=(dosfstools fdisk mtools ovmf syslinux syslinux-common)
[ -z "$all" ] || command -v searx-run >/dev/null || packages+=(searx)
[ -z "$all" ] || command -v strace >/dev/null || packages+=(strace)
command -v runc >/dev/null || packages+=(runc)
{ command -v nft && command -v ip; } >/dev/null || packages+=(nftables iproute2)
command -v newuidmap >/dev/null || packages+=(uidmap)
installing=
if [ ${#packages[@]} -gt 0 ]; then
    echo "Installing ${packages[*]} ..."
    apt_install "${packages[@]}" &
    installing=$!
fi
install requirements-dev.lock
[ -z "$installing" ] || wait "$installing"

lint() { .venv/bin/ruff check . && .venv/bin/ruff format --check --quiet . && .venv/bin/mypy && .venv/bin/lint-imports --no-cache; }

linted=$(mktemp)
audited=$(mktemp)
trap 'rm -f "$linted" "$audited"' EXIT
lint >"$linted" 2>&1 & # beside the image, which is mostly unpacked by one process
linting=$!
.venv/bin/python scripts/supply.py audit >"$audited" 2>&1 & # mostly waits for the package index; without one, it says so
auditing=$!
# The first process to import a test compiles it for those that run the tests and would else all do so at the same moment.
.venv/bin/python -m pytest --collect-only --quiet >/dev/null 2>&1 &
compiling=$!
if have_root; then
    .venv/bin/python scripts/build_guest.py # there already, mostly; else it takes a minute or two
fi
wait "$linting" || { cat "$linted" >&2; exit 1; }
cat "$linted"
wait "$auditing" || { cat "$audited" >&2; exit 1; }
cat "$audited"
rm -f "$linted" "$audited"
wait "$compiling" || true # a test that cannot be imported is reported below
run_tests() { .venv/bin/python -m pytest --dist loadfile --no-loadscope-reorder "$@"; }
status=0
# Most tests wait for processes, not for the processor: several files at a time, whatever the number of cores.
run_tests --numprocesses 6 -m "not slow" "$@" || status=$?
if [ -n "$all" ]; then
    # The slow ones boot desktops and emulate machines: no more than two files a processor at a time.
    cores=$(nproc)
    slow=0
    run_tests --numprocesses $((cores < 4 ? 2 * cores : 6)) -m slow "$@" || slow=$?
    [ "$status" != 5 ] || status=0 # 5: the options select no such test
    [ "$slow" = 5 ] || [ "$status" != 0 ] || status=$slow
fi
exit "$status"
