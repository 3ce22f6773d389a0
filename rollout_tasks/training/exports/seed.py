"""The trajectory folders of DART's rollouter, whose trainer reads them. It needs torch.

seed/<item>_<run>-<index>/
    task_config.json              the task: its id, its instruction and the rest of the item
    image_0000.png ...            the pictures of its prompts, numbered as the model first saw them
    msg_for_prompt_<step>.json    the messages that the model was sent in a step, from 1
    data_for_step_<step>.pt       the tokens of the step: logp, token_ids, prompt_token_ids
    timestamp_info_<step>.json    when the step ended
    images_data.pt                the pictures of each step's prompt, in order
    final_messages.json           the whole conversation
    reward.txt                    the reward; reward_from_env.txt is the same
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.linked_files import LinkedFiles
from rollout_tasks.training.exports.seed_documents import SeedTrajectory, seed_trajectory
from rollout_tasks.training.scored_rollouts import ScoredRollout

FOLDER = "seed"


class Files:
    """The folders while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Writes nothing yet.

        Args:
            run: The run that is exported.
            folder: Where to write.

        Raises:
            OSError: It cannot be written.
            UserError: torch is not installed, or the run's items cannot be read.
        """
        try:
            import torch  # here, because it is optional
        except ImportError as error:
            raise UserError("--format seed needs the package torch: uv pip install torch") from error
        self._torch = torch
        self._run_id = run.path.name
        self._items: dict[str, Item] = {item.id: item for item in run.description.each_item()}
        self._folder = folder / FOLDER
        self._folder.mkdir()
        self._linked = LinkedFiles()
        self.counted: Counter[str] = Counter(rollouts=0, steps=0, sampled_tokens=0, pictures=0)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Has nothing to complete: each folder is complete when it is written."""

    def read(self, rollout: ScoredRollout) -> SeedTrajectory:
        """Reads a rollout's steps.

        Raises:
            LookupError: The run has no such item.
            Exception: As `seed_trajectory`.
        """
        return seed_trajectory(self._run_id, self._items[rollout.item_id], rollout)

    def write(self, content: SeedTrajectory) -> None:
        """Writes a rollout's folder.

        Raises:
            OSError: It cannot be written, or a picture cannot be read.
        """
        folder = self._folder / content.name
        folder.mkdir()
        for name, text in content.texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for place, picture in content.images.items():
            self._linked.add_picture(picture, content.files[picture], folder / place)
        for number, step in enumerate(content.steps, 1):
            self._save(
                folder / f"data_for_step_{number}.pt",
                {
                    "logp": self._torch.tensor(step.logprobs, dtype=self._torch.float32),
                    "token_ids": self._torch.tensor(step.output_ids, dtype=self._torch.int64),
                    "prompt_token_ids": self._torch.tensor(step.prompt_ids, dtype=self._torch.int64),
                },
            )
        shown = [self._torch.tensor(step, dtype=self._torch.int64) for step in content.shown]
        self._save(folder / "images_data.pt", {"images": list(content.images), "prompt_images": shown})
        self.counted.update(rollouts=1, steps=len(content.steps))
        self.counted.update(sampled_tokens=sum(len(step.output_ids) for step in content.steps))
        self.counted["pictures"] = self._linked.count

    def _save(self, path: Path, values: dict[str, Any]) -> None:
        try:
            self._torch.save(values, path)
        except RuntimeError as error:  # so torch says that a disk is full
            raise OSError(0, f"cannot be written: {error}", str(path)) from error
