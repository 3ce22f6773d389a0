"""kombu's Redis transport and Celery's Redis result backend, with this project's changes."""
