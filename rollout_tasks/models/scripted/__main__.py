"""`python -m rollout_tasks.models.scripted`: the same command as `scripts/scripted_model.py`."""

from rollout_tasks.models.scripted.command import main

main()
