# The images of docker-compose.yml: `light` (the default) for every service, `osworld` for workers that act on desktops.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS base

# bubblewrap isolates the code that models write (environment `py`).
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*

RUN python3 -m venv /opt/venv && useradd --uid 1000 --create-home rollouts
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /app
CMD ["celery", "-A", "rollout_tasks", "worker", "--loglevel=INFO"]


FROM base AS light
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY . .
# The results volume takes its owner from this folder.
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --editable . \
    && python -m compileall -q benchmark vm_pool rollout_tasks celeryconfig.py \
    && install -d -o rollouts -g rollouts results
USER rollouts


# desktop-env and what its evaluators need, without torch: hence --no-deps, the file names everything that belongs to it.
FROM base AS osworld
# For Playwright's driver, with which evaluators look into a guest's browser, and for the metric that reads text off pictures.
RUN apt-get update \
    && apt-get install -y --no-install-recommends file libatomic1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-osworld.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r requirements-osworld.lock
COPY . .
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --editable . \
    && python -m compileall -q benchmark vm_pool rollout_tasks celeryconfig.py \
    && install -d -o rollouts -g rollouts results downloads
ENV XDG_CACHE_HOME=/app/downloads
USER rollouts


# What is built where no target is named.
FROM light
