"""The index of rollouts: what a trainer's program calls."""

from __future__ import annotations

from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.settings import settings
from rollout_tasks.training.index import claims, versions
from rollout_tasks.training.index.added_runs import Added, add_run
from rollout_tasks.training.index.claims import Claim, ListedClaim
from rollout_tasks.training.index.database import Database
from rollout_tasks.training.index.rule import Rule
from rollout_tasks.training.index.seed_schema import fill_groups, record_checkpoint, record_uses
from rollout_tasks.training.index.seed_schema import metadata as seed_tables
from rollout_tasks.training.index.trainable import TrainableGroup, trainable_groups
from rollout_tasks.training.index.versions import Checkpoint

DEFAULT_URL = "sqlite:///results/index.sqlite"


class Index:
    """An index of rollouts in a database. Any number of programs may use one at the same time."""

    def __init__(self, url: str | None = None, *, seed_schema: bool = False, must_exist: bool = False) -> None:
        """Opens an index; makes it if there is none.

        Args:
            url: Its database, as in ``sqlite:///results/index.sqlite``, ``postgresql://USER@HOST/NAME`` or
                ``mysql://USER@HOST/NAME``; default: ``ROLLOUT_INDEX_URL``, or else the first of these.
            seed_schema: Whether the tables of an older system are written, too, for programs that read them.
            must_exist: Refuses an address of SQLite where there is no file, as of one that is misspelt.

        Raises:
            UserError: The address is wrong, a driver is missing, the database does not answer, or there is no file.
        """
        configured = settings().index_url
        address = url or (configured.get_secret_value() if configured else DEFAULT_URL)
        self._database = Database(address, must_exist=must_exist)
        self._seed = seed_schema
        if seed_schema:
            self._database.make(seed_tables)

    def __repr__(self) -> str:
        return f"Index({str(self._database)!r})"

    def add(self, run_folder: Path | str, *, report: Path | str | None = None) -> Added:
        """Adds a scored run, or what is new of one that was added before, as after a resume or another scoring.

        Args:
            run_folder: The run's folder. Trainers must see it at the same path: traces are read from it.
            report: The JSON report whose scores are the rewards; default: the run's own.

        Raises:
            BenchmarkError: The report is missing or cannot be read.
            UserError: The folder is not a run's, another run in the index has its id, or the database refuses.
        """
        folder = RunFolder(Path(run_folder).resolve())
        return add_run(self._database, folder, Path(report) if report else folder.evaluation, seed=self._seed)

    def groups(self, rule: Rule | None = None, *, most: int = 64) -> list[TrainableGroup]:
        """Returns groups that a claim would take now, without taking them.

        Args:
            rule: What is trainable; default: ``Rule()``.
            most: How many groups, at most.

        Raises:
            UserError: The database refuses.
        """
        rule = rule or Rule()
        if not self._seed:
            with self._database.reading() as connection:
                return trainable_groups(connection, rule, most)
        with self._database.writing() as connection:
            found = trainable_groups(connection, rule, most)
            fill_groups(connection, found)
            return found

    def claim(self, rule: Rule | None = None, *, groups: int, by: str) -> Claim | None:
        """Takes groups: nobody else gets one of their rollouts, unless the claim is given back.

        Args:
            rule: What is trainable; default: ``Rule()``.
            groups: How many, at most.
            by: Who takes them, for those who look at the claims.

        Returns:
            The groups with their traces; None if no group is trainable now.

        Raises:
            UserError: A value makes no sense, the database refuses, or none of the groups can be read, as when their runs were
                moved: add these again from where they are now.
        """
        with self._database.writing() as connection:
            taken = claims.take(connection, rule or Rule(), groups, by)
            if taken is None:
                return None
            number, when, found = taken
            if self._seed:
                record_uses(connection, [one.key for group in found for one in group.rollouts], 1)
        read = tuple(map(claims.read, found))
        if not any(group.rollouts for group in read):
            self.give_back(number)
            count = f"{len(read)} group{'' if len(read) == 1 else 's'}"
            moved = "add runs that were moved to the index again"
            raise UserError(f"no rollout of {count} can be read, and none is taken ({moved}): {read[0].problem}")
        return Claim(number, by, when, read)

    def give_back(self, claim: Claim | int) -> int:
        """Makes a claim's rollouts unused again, as of a trainer that died; harmless when repeated.

        Args:
            claim: The claim, or its id.

        Returns:
            How many rollouts were given back.

        Raises:
            UserError: There is no such claim, or the database refuses.
        """
        with self._database.writing() as connection:
            returned = claims.give_back(connection, claim.id if isinstance(claim, Claim) else claim)
            if self._seed:
                record_uses(connection, returned, -1)
        return len(returned)

    def claims(self) -> list[ListedClaim]:
        """Returns the claims that were not given back, the newest first.

        Raises:
            UserError: The database refuses.
        """
        with self._database.reading() as connection:
            return claims.held(connection)

    def checkpoint(
        self,
        version: str,
        *,
        step: int | None = None,
        name: str | None = None,
        path: str | None = None,
        status: str | None = None,
    ) -> Checkpoint:
        """Registers a version of the model, or changes what is given of one that is there.

        A version that a rollout had before anybody registered it has its place already: after those that came before.

        Args:
            version: As rollouts have it, such as the weight version of a model pool.
            step: Its place in the order of versions; default: after the newest.
            name: What people call it.
            path: Where its weights are.
            status: A word of yours, such as ``served``.

        Raises:
            UserError: A value makes no sense, or the database refuses.
        """
        with self._database.writing() as connection:
            found = versions.register(connection, version, step=step, name=name, path=path, status=status)
            if self._seed:
                record_checkpoint(connection, found)
            return found

    def checkpoints(self) -> list[Checkpoint]:
        """Returns the versions of the model that the index knows, the newest first.

        Raises:
            UserError: The database refuses.
        """
        with self._database.reading() as connection:
            return versions.every(connection)
