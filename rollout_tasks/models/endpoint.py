"""Which endpoint a model's calls go to."""

from __future__ import annotations

from rollout_tasks.model_config import POOL_SCHEME, ModelConfig
from rollout_tasks.models.apis import OPENAI_URL
from rollout_tasks.settings import settings


def endpoint_of(config: ModelConfig) -> str:
    """Returns the endpoint of a model's calls: its pool, else the configuration's, else the environment's, else OpenAI's."""
    if config.pool is not None:
        return f"{POOL_SCHEME}{config.pool}"
    return (config.base_url or settings().openai_base_url or OPENAI_URL).rstrip("/")
