"""A hook of mkdocs: adds the page of all commands, made from the commands themselves (`rollout_tasks.cli.reference`)."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mkdocs.structure.files import File

from rollout_tasks.cli.reference import commands_page


def on_files(files: Any, config: Any) -> Any:
    """Adds the page."""
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    return files
