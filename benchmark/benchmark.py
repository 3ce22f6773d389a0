"""The `Benchmark` class for Python programs: loads items from a file or tree, and evaluates answers to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmark.evaluation import Evaluation, RolloutResult, evaluate
from benchmark.items import Item, load_items
from benchmark.judge import Judge
from benchmark.markdown_report import write_markdown
from benchmark.report import BenchmarkInfo, write_report
from benchmark.selection import select


class Benchmark:
    """The items of one file or tree, in order. Iterating gives the items; ``len`` counts them."""

    def __init__(
        self,
        data_path: Path | str,
        *,
        name: str = "",
        description: str = "",
        answer_pattern: str | None = None,
        skip_invalid: bool = False,
        fields: Mapping[str, str] | None = None,
        split: str | None = None,
        ids: Sequence[str] = (),
        domains: Sequence[str] = (),
        limit: int | None = None,
        shuffle_seed: int | None = None,
    ) -> None:
        r"""Loads and checks the items.

        Args:
            data_path: A file, a dataset's folder or an OSWorld tree; see `benchmark.items.load_items`.
            name: For reports; default: the file's name.
            description: For reports.
            answer_pattern: Regular expression with one group around the final answer, such as ``#### (.+)``.
            skip_invalid: Leave out invalid entries, and describe them in `skipped`.
            fields: Names of fields in the data, where they differ: ``{"question": "prompt"}``.
            split: Which split of a dataset that has several.
            ids: Only items with these ids; ``*`` stands for anything.
            domains: Only items of these domains; ``*`` stands for anything.
            limit: At most this many items.
            shuffle_seed: Shuffle before the limit is applied.

        Raises:
            BenchmarkError: An entry is invalid (names file, line or entry, and field), or no item matches the options.
        """
        loaded = load_items(
            data_path, answer_pattern=answer_pattern, skip_invalid=skip_invalid, fields=fields, split=split
        )
        self.data_path = Path(data_path)
        self.name = name or loaded.name
        self.description = description
        self.skipped: tuple[str, ...] = loaded.skipped
        """A sentence for each entry that was left out."""
        self.selection = {
            "answer_pattern": answer_pattern,
            "skip_invalid": skip_invalid,
            "fields": tuple(f"{name}={data_field}" for name, data_field in (fields or {}).items()),
            "split": split,
            "ids": tuple(ids),
            "domains": tuple(domains),
            "limit": limit,
            "shuffle": shuffle_seed is not None,
            "seed": shuffle_seed or 0,
        }
        """How the items were selected, in the form of a run's ``data``."""
        self.items: tuple[Item, ...] = tuple(
            select(loaded.items, ids=ids, domains=domains, shuffle_seed=shuffle_seed, limit=limit)
        )

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def get_items(self) -> list[Item]:
        """Returns the items as a list."""
        return list(self.items)

    def evaluate(
        self,
        results: Mapping[str, str] | Iterable[RolloutResult],
        metric: str = "exact_match",
        *,
        rollouts_per_item: int = 1,
        judge: Judge | None = None,
    ) -> Evaluation:
        """Scores answers. An item without an answer scores 0 and lowers the coverage.

        Args:
            results: Answers by item id; or the results of a run.
            metric: The metric's name; ``rollouts list metrics`` shows all.
            rollouts_per_item: How many results an item may have.
            judge: The judge for ``llm_judgement``; default: the one the environment names.

        Raises:
            BenchmarkError: No metric has that name, or a result belongs to no item.
        """
        if isinstance(results, Mapping):
            results = [RolloutResult(item_id, answer=answer) for item_id, answer in results.items()]
        return evaluate(self.items, results, metric=metric, rollouts_per_item=rollouts_per_item, judge=judge)

    def save_report(self, evaluation: Evaluation, folder: Path | str) -> Path:
        """Writes ``evaluation.json`` and ``report.md``.

        Args:
            evaluation: What `evaluate` returned.
            folder: The folder for both; created if it does not exist.

        Returns:
            The path of ``report.md``.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        info = BenchmarkInfo(self.name, str(self.data_path), self.description, left_out=self.skipped)
        write_report(folder / "evaluation.json", evaluation, info)
        write_markdown(folder / "report.md", evaluation.overview, info)
        return folder / "report.md"
