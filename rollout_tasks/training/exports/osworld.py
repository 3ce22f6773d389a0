"""The result folders of OSWorld's own runner, so that its tools, such as show_result.py, count them.

osworld/<rollout>/<action space>/<observation type>/<model>/<domain>/<item id>/
    traj.jsonl  step_<turn>_<time>.png ...  recording.mp4  result.txt

The runner knows one try at each task: an item's first rollouts are a tree of their own, so are its second ones, and so on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.item_paths import encode_id
from rollout_tasks.training.exports.linked_files import LinkedFiles
from rollout_tasks.training.exports.message_texts import reply_text
from rollout_tasks.training.scored_rollouts import ScoredRollout
from rollout_tasks.trajectories.model_calls import PictureFiles
from rollout_tasks.trajectories.reader import RecordedStep, TrajectoryError, read_trajectory
from rollout_tasks.trajectories.writer import RECORD_NAME
from rollout_tasks.unicode_text import storable_json

FOLDER, STEPS_NAME, RESULT_NAME, RECORDING_NAME = "osworld", "traj.jsonl", "result.txt", "recording.mp4"
NO_DOMAIN = "no-domain"
"""Where items without a domain are."""
_TIME = "%Y%m%d@%H%M%S%f"
_DEEPEST = 60
_MOST_TURNS = 1_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rollout."""

    place: Path
    """Its folder, below the format's."""
    reward: float
    recording: Path
    lines: tuple[str, ...]
    """Of traj.jsonl."""
    shown: Mapping[str, str]
    """The screenshots by their names in the folder, each with the name of its content."""
    pictures: Mapping[str, Path]


class Files:
    """The files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Reads the domains of the run's items.

        Args:
            run: The run that is exported.
            folder: Where to write.

        Raises:
            UserError: The run's description is broken.
        """
        config = run.description.config()
        desktop = config.desktop
        self._setting = Path(desktop.action_space, desktop.observation_type, encode_id(config.model.name))
        self._domains = {item.id: item.domain for item in run.description.each_item()}
        self._folder = folder / FOLDER
        self._linked = LinkedFiles()
        self.counted: Counter[str] = Counter(rollouts=0, steps=0, pictures=0, recordings=0)

    def __enter__(self) -> Files:
        self._folder.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def read(self, rollout: ScoredRollout) -> Result:
        """Reads what a rollout did.

        Raises:
            TrajectoryError: Its record cannot be read.
            ValueError: It has something that the format does not take.
        """
        record = rollout.folder / RECORD_NAME
        if record.exists() and not record.is_file():  # reading a pipe would take for ever
            raise TrajectoryError(f"{record}: not a file")
        trajectory = read_trajectory(rollout.folder, images=False)
        said = {reply.turn: reply_text(trajectory.messages[reply.message_index]) for reply in trajectory.replies}
        pictures = PictureFiles(rollout.folder, record)
        lines: list[str] = []
        shown: dict[str, str] = {}
        for step, in_turn in _placed(trajectory.steps):
            file = None
            if step.observation is not None and step.observation.images:
                content = pictures.name(step.observation.images[-1].name)
                file = f"step_{step.turn}_{_time(step) or in_turn}.{content.rpartition('.')[2]}"
                while file in shown:  # two actions at the same time
                    file = f"{Path(file).stem}_{in_turn}{Path(file).suffix}"
                shown[file] = content
            lines.append(_line(step, said.get(step.turn, ""), file))
        domain = encode_id(self._domains.get(rollout.item_id) or NO_DOMAIN)
        place = Path(str(rollout.index), self._setting, domain, encode_id(rollout.item_id))
        recording = rollout.folder / RECORDING_NAME
        return Result(place, rollout.reward, recording, tuple(lines), shown, pictures.files)

    def write(self, content: Result) -> None:
        """Writes a rollout's folder.

        Raises:
            OSError: A file cannot be written, or a picture cannot be read.
        """
        place = self._folder / content.place
        place.mkdir(parents=True)
        (place / STEPS_NAME).write_text("".join(content.lines), encoding="utf-8")
        for file, name in content.shown.items():
            self._linked.add_picture(name, content.pictures[name], place / file)
        recordings = self._linked.add_file(content.recording, place / RECORDING_NAME)
        (place / RESULT_NAME).write_text(f"{content.reward}\n", encoding="utf-8")
        self.counted.update(rollouts=1, steps=len(content.lines), recordings=int(recordings))
        self.counted["pictures"] = self._linked.count


def _placed(steps: tuple[RecordedStep, ...]) -> Iterator[tuple[RecordedStep, int]]:
    """Yields steps, each with its place among those of its turn, from 1."""
    counted: Counter[int] = Counter()
    for step in steps:
        if type(step.turn) is not int or not 0 <= step.turn < _MOST_TURNS:
            raise ValueError(f"step {step.number} has the turn {ascii(step.turn)[:50]}")
        counted[step.turn] += 1
        yield step, counted[step.turn]


def _line(step: RecordedStep, said: str, file: str | None) -> str:
    ending = step.ends_episode
    values = {
        "step_num": step.turn,
        "action_timestamp": _time(step),
        "action": _action(step),
        "response": said,
        "reward": 0,
        "done": ending is not None,
        "info": {**({str(ending): True} if ending else {}), "status": step.status, "response": step.response},
        "screenshot_file": file,
    }
    return json.dumps(storable_json(values, _DEEPEST), ensure_ascii=False, allow_nan=False) + "\n"


def _action(step: RecordedStep) -> Any:
    """Returns an action in OSWorld's words where it has one, else as a tool's name and its arguments."""
    arguments = step.arguments
    if step.name == SCRIPT.name and isinstance(arguments.get("script"), str):
        return arguments["script"]
    if step.name == CONTROL.name and isinstance(arguments.get("action"), str):
        return arguments["action"].upper()
    return {"action_type": step.name, "parameters": arguments}


def _time(step: RecordedStep) -> str | None:
    """Returns when a step began, in UTC; None in records of earlier versions."""
    if step.at is None:
        return None
    return (datetime.fromtimestamp(step.at, UTC) - timedelta(seconds=step.seconds)).strftime(_TIME)
