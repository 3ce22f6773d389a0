#!/usr/bin/env python3
"""Serves the scripted model: a stand-in for a language model that plays scripts and fails on demand."""

from rollout_tasks.models.scripted.command import main

if __name__ == "__main__":
    main()
