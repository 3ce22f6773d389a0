"""What this project adds to a Celery worker: options, boot steps, timers and VMs."""
