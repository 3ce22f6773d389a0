"""What this project adds to a Celery worker: boot steps, its VMs, and how its messages travel through Redis."""
