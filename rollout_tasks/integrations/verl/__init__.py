"""verl as the trainer: its engine samples, and the workers supply desktop, agent and score.

`agent_loop` is what verl loads, and needs its package; nothing else here does.
"""
