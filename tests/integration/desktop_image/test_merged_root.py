"""What a layer contains that changes of a merged root made: what a disk is made from, by copying files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from desktop_image.merged_root import layer_options

CHANGES = """
import os, shutil
shutil.move("root/folder", "root/renamed")
os.chmod("root/file", 0o640)
print(os.listdir("layer/renamed"), "trusted.overlay.metacopy" in os.listxattr("layer/file"))
"""
AS_ELSEWHERE = "redirect_dir=on,metacopy=on"
"""What some kernels do by default."""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_layer_has_all_of_what_was_renamed_or_changed(tmp_path: Path) -> None:
    for name in ("below/folder", "layer", "work", "root"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "below/folder/in it").touch()
    (tmp_path / "below/file").write_text("four")
    options = f"{AS_ELSEWHERE},{layer_options([tmp_path / 'below'], tmp_path / 'layer', tmp_path / 'work')}"
    script = 'mount -t overlay -o "$1" overlay root && exec "$2" -c "$3"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", options, sys.executable, CHANGES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount" in done.stderr:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")
    assert done.stdout.strip() == "['in it'] False"
