"""`python -m rollout_tasks.models.scripted`: the same command as `rollouts scripted-model`."""

from rollout_tasks.models.scripted.command import main

main()
