"""Later rollouts have later seeds: of the run's own model, and of the further ones that have a seed."""

from __future__ import annotations

from rollout_tasks.config import RunConfig
from rollout_tasks.models.sampling_seeds import with_later_seeds

CONFIG = RunConfig.model_validate(
    {"model": {"seed": 5}, "model_roles": [{"role": "seeded", "model": {"seed": 9}}, {"role": "other", "model": {}}]}
)


def test_each_model_that_has_a_seed_gets_a_later_one() -> None:
    later = with_later_seeds(CONFIG, 3)

    assert [model.seed for model in later.models] == [8, 12, None]
    assert CONFIG.model.seed == 5


def test_the_first_rollout_has_the_seed_that_was_given() -> None:
    assert with_later_seeds(CONFIG, 0) == CONFIG
