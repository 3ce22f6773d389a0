"""One group as a run on workers: submitted, looked at, tried again where the infrastructure lost rollouts, cut short, and read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmark.items import Item, LoadedItems
from benchmark.metrics import JUDGE_METRIC
from benchmark.results import VALID
from benchmark.scoring import Outcome, score_each
from rollout_tasks.config import MOST_ROLLOUTS, RunConfig
from rollout_tasks.execution.cancellation import cancel_run
from rollout_tasks.models.sampling_seeds import with_later_seeds
from rollout_tasks.queues import finalize_task
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.progress import progress_in_folder
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import new_submission, resumed_submission
from rollout_tasks.runs.submit_to_workers import submit_to_workers
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.scored_rollouts import reported
from rollout_tasks.training.service_loop.journal import Begun, Ended

_OVER = frozenset({"done", "cancelled"})


def submit_group(begun: Begun, item: Item, config: RunConfig, images: Sequence[str] = ()) -> None:
    """Submits a group's run.

    Args:
        begun: The group.
        item: Its item.
        config: What all groups have in common.
        images: The images of the desktops, for the report.

    Raises:
        UserError: A service or an option cannot be used, and nothing was enqueued; or Redis was lost while it was.
    """
    limits = config.limits.model_copy(update={"max_turns": begun.max_turns})
    config = with_later_seeds(config, begun.number * MOST_ROLLOUTS)
    own = {"run_id": begun.run_id, "rollouts_per_item": begun.rollouts, "limits": limits}
    items = LoadedItems(begun.item_id, "", (item,))
    submit_to_workers(new_submission(config.model_copy(update=own), items, images=images))


class GroupRun:
    """The run of a group that was submitted."""

    def __init__(self, begun: Begun, output_dir: Path) -> None:
        """Reads nothing yet."""
        self.begun = begun
        self.folder = RunFolder(output_dir / begun.run_id)
        self.stopped_early = False
        self._tried_again = 0
        self._looked_at = 0

    @property
    def was_submitted(self) -> bool:
        """Whether there is a run of it, whole or not: a submission that does not succeed removes its folder."""
        return self.folder.path.exists()

    def progress(self, store: RunStore) -> Progress:
        """Returns how far it is.

        Raises:
            redis.RedisError: Redis does not answer.
            UserError: Its folder cannot be read.
        """
        return store.progress(self.begun.run_id) or progress_in_folder(self.folder)

    def is_over(self, progress: Progress) -> bool:
        """Returns whether nothing more comes of it: each rollout has ended, and the report is there if it was made."""
        return progress.state in _OVER or (progress.state == "unknown" and not self.needs_resume(progress))

    def needs_resume(self, progress: Progress) -> bool:
        """Returns whether nobody goes on with it: its submission broke off, or Redis has lost it."""
        lost = progress.state == "unknown" and not (progress.pending == 0 and self.folder.evaluated_as_asked())
        return lost or progress.state == "half_submitted"

    def resume(self) -> None:
        """Submits what it lacks or lost.

        Raises:
            UserError: As for `submit_group`.
        """
        submit_to_workers(resumed_submission(self.folder))

    def try_again(self, ended: Ended, most: int) -> bool:
        """Submits the rollouts that the infrastructure lost once more, if there are any and that was not done too often.

        Args:
            ended: How it ended.
            most: How often that may be done.

        Returns:
            Whether it was done.

        Raises:
            UserError: As for `submit_group`.
        """
        if "infrastructure_loss" not in ended.left_out or self.stopped_early or self._tried_again >= most:
            return False
        self.resume()
        self._tried_again += 1
        return True

    def new_rewards(self, progress: Progress, metric: str) -> list[float]:
        """Returns the scores of those rollouts that count and have ended; nothing if no more have than at the last call.

        Args:
            progress: How far it is.
            metric: The metric for answers that the environment did not score itself; one that asks a model scores only the whole.

        Raises:
            BenchmarkError: The metric cannot be used.
            UserError: A verdict cannot be read.
        """
        if progress.committed <= self._looked_at or metric == JUDGE_METRIC:
            return []
        self._looked_at = progress.committed
        names = [rollout_id_of(self.begun.item_id, index) for index in range(self.begun.rollouts)]
        results = [verdict.as_result() for verdict in self.folder.settled_verdicts(names)]
        (item,) = self.folder.description.items()
        ((_, row),) = score_each([Outcome(item, results)], metric=metric)
        return [one.score for one in row.rollouts if one.standing in VALID and one.score is not None]

    def stop(self, store: RunStore) -> None:
        """Cancels the rollouts that have not ended; may be repeated after an error.

        Raises:
            kombu.exceptions.OperationalError: The broker does not answer.
            redis.RedisError: Redis does not answer.
        """
        if cancel_run(store, self.begun.run_id).left == 0:
            finalize_task(self.begun.run_id).apply_async()
        self.stopped_early = True

    def end(self) -> Ended:
        """Returns how it ended.

        Raises:
            BenchmarkError: Its report cannot be read.
            UserError: A verdict cannot be read.
        """
        if not self.folder.has_report():
            return Ended(self.begun.number, left_out={"missing": self.begun.rollouts})
        rewards: list[float] = []
        turns: list[int] = []
        left_out: Counter[str] = Counter()
        for _, rows in reported(self.folder.evaluation):
            for row in rows:
                if row["standing"] not in VALID or row["score"] is None:
                    left_out[str(row["standing"])] += 1
                    continue
                rewards.append(float(row["score"]))
                verdict = self.folder.final_verdict(rollout_id_of(self.begun.item_id, int(row["index"])))
                turns.append(verdict.turns if type(verdict.turns) is int else 0)  # somebody may have changed it
        return Ended(self.begun.number, rewards, turns, dict(left_out), self.stopped_early)
