"""Who may use which virtual machine, and the machines' own lives.

Knows nothing of benchmarks or Celery: any program with a Redis connection can lend and borrow VMs through it.
"""
