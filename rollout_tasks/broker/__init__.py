"""How tasks' messages travel through Redis: kombu's transport and Celery's result backend, with what they lack added."""
