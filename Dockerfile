# The image of every Python service in docker-compose.yml: worker, finalizer, Flower, commands.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

# bubblewrap isolates the code that models write (environment `py`).
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*

RUN python3 -m venv /opt/venv && useradd --uid 1000 --create-home rollouts
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1

WORKDIR /app
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY . .
# The results volume takes its owner from this folder.
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --editable . \
    && python -m compileall -q benchmark vm_pool rollout_tasks celeryconfig.py \
    && install -d -o rollouts -g rollouts results

USER rollouts
CMD ["celery", "-A", "rollout_tasks", "worker", "--loglevel=INFO"]
