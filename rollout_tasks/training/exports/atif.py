"""Harbor's Agent Trajectory Interchange Format (ATIF): one trajectory for each rollout, with its pictures beside it.

atif/<item id>/<rollout>/trajectory.json
atif/<item id>/<rollout>/images/<SHA-256>.png

`atif_steps` makes the steps; this module writes the files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.item_paths import encode_id
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.exports.atif_steps import IMAGES_NAME, AtifSteps
from rollout_tasks.training.exports.linked_files import LinkedFiles
from rollout_tasks.training.scored_rollouts import NoCalls, ScoredRollout
from rollout_tasks.trajectories.model_calls import ModelCall, read_model_calls
from rollout_tasks.unicode_text import storable_json

FOLDER, TRAJECTORY_NAME = "atif", "trajectory.json"
VERSION = "ATIF-v1.8"
_DEEPEST = 80
_NOTES = (
    "The first prompt, each reply with what its calls did, and later words of the user. What prompts repeat, shorten or leave out"
    " is not here."
)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The trajectory of one rollout."""

    place: Path
    """Its folder, below the format's."""
    text: str
    """The file's content."""
    steps: int
    shown: tuple[str, ...]
    """The names of its pictures."""
    pictures: Mapping[str, Path]


class Files:
    """The files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens nothing yet.

        Args:
            run: The run that is exported.
            folder: Where to write.
        """
        made_by = run.description.document().get("made_by")
        version = made_by.get("version") if isinstance(made_by, dict) else ""
        self._run_id = run.path.name
        self._agent = {"name": run.description.agent() or "unknown", "version": str(version or "unknown")}
        self._folder = folder / FOLDER
        self._linked = LinkedFiles()
        self.counted: Counter[str] = Counter(rollouts=0, steps=0, pictures=0)

    def __enter__(self) -> Files:
        self._folder.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def read(self, rollout: ScoredRollout) -> Trajectory:
        """Reads a rollout's trajectory.

        Raises:
            CallRecordError: Its record cannot be read.
            NoCalls: No model replied in it.
            TrajectoryError: As `CallRecordError`.
            ValueError: It has something that the format does not take.
        """
        episode = read_model_calls(rollout.folder)
        if not episode.calls:
            raise NoCalls
        steps = AtifSteps(episode)
        steps.add_all()
        if not steps.shown.keys() <= episode.pictures.files.keys():
            raise ValueError(f"{rollout.folder}: a picture is where no picture can be")
        place = Path(encode_id(rollout.item_id), str(rollout.index))
        document = storable_json(self._document(rollout, episode.calls, steps.steps), _DEEPEST)
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
        return Trajectory(place, text, len(steps.steps), tuple(steps.shown), episode.pictures.files)

    def write(self, content: Trajectory) -> None:
        """Writes a rollout's trajectory with its pictures.

        Raises:
            OSError: A file cannot be written, or a picture cannot be read.
        """
        place = self._folder / content.place
        place.mkdir(parents=True)
        (place / TRAJECTORY_NAME).write_text(content.text + "\n", encoding="utf-8")
        if content.shown:
            (place / IMAGES_NAME).mkdir()
        for name in content.shown:
            self._linked.add_picture(name, content.pictures[name], place / IMAGES_NAME / name)
        self.counted.update(rollouts=1, steps=content.steps)
        self.counted["pictures"] = self._linked.count

    def _document(
        self, rollout: ScoredRollout, calls: tuple[ModelCall, ...], steps: list[dict[str, Any]]
    ) -> dict[str, Any]:
        tools = next((call.tools for call in calls if call.tools), ())
        agent = {**self._agent, "model_name": calls[0].model}
        return {
            "schema_version": VERSION,
            "session_id": self._run_id,
            "trajectory_id": f"{rollout_id_of(rollout.item_id, rollout.index)}/attempt-{rollout.attempt}",
            "agent": {**agent, "tool_definitions": list(tools)} if tools else agent,
            "steps": steps,
            "notes": _NOTES,
            "final_metrics": {
                "total_prompt_tokens": sum(call.prompt_tokens for call in calls),
                "total_completion_tokens": sum(call.completion_tokens for call in calls),
                "total_steps": len(steps),
                "extra": {"reward": rollout.reward},
            },
            "extra": {
                "run_id": self._run_id,
                "item_id": rollout.item_id,
                "rollout": rollout.index,
                "attempt": rollout.attempt,
                "reward": rollout.reward,
                "failure_class": rollout.failure_class,
            },
        }
