"""Whether a model's endpoint works, asked for no more than its list of models."""

from __future__ import annotations

from contextlib import closing

from benchmark.deadline import Deadline, TooSlowError, with_deadlines
from rollout_tasks.models.apis import APIS
from rollout_tasks.settings import settings

ANSWER_SECONDS = 5.0


def problem_of(endpoint: str, api: str, key: str | None = None) -> str:
    """Returns why an endpoint does not work, as the rest of a sentence; empty if it answers, whatever it says of the request.

    Args:
        endpoint: Its base URL.
        api: The one in which it is asked, a key of `APIS`.
        key: What is sent as its key; empty: nothing; None: the key of a run's own endpoint.
    """
    import httpx2  # the openai package's client: slow to import, and few models fail

    if key is None:
        configured_key = settings().openai_api_key
        key = configured_key.get_secret_value().strip() if configured_key else ""
    headers = APIS[api].login(key) if key else {}
    try:
        with (
            with_deadlines(httpx2.Client(headers=headers, timeout=Deadline(ANSWER_SECONDS))) as http,
            closing(http.send(http.build_request("GET", f"{endpoint}/models"), stream=True)) as response,
        ):
            return f"answers HTTP {response.status_code}" if response.status_code >= 500 else ""
    except (httpx2.TimeoutException, TooSlowError):
        return f"gives no answer within {ANSWER_SECONDS:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError, ImportError) as error:
        return f"cannot be reached ({type(error).__name__})"
