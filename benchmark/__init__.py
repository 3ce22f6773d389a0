"""What is asked of an agent and how its answers are scored.

Knows nothing of Celery, Redis or virtual machines: it can be used alone, on a laptop, on a finished run's results.
"""
