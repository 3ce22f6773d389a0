"""Checks whether a guest fits a task: what the task touches, what the guest has of it, and what follows.

Data flows one way: `touches` reads tasks, `probe` asks a guest about what they touch, `verdicts` compares the two.
"""
