"""Checks whether a guest fits a task: what the task touches, which of it the guest has, and what that means for scores.

Data flows one way: `touches` reads tasks, `probe` asks a guest about what they touch, `verdicts` compares the two.
"""
