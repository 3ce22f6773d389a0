"""What the tests of the scripted model ask with: the example items, the repository, and conversations over `openai`."""

from functools import lru_cache
from pathlib import Path

import openai

from rollout_tasks.models.session_ids import session_id

REPOSITORY = Path(__file__).resolve().parents[4]
EXAMPLES = REPOSITORY / "examples" / "items.jsonl"


@lru_cache
def connect(url, key):
    """One client for all conversations with an endpoint: each takes long to make."""
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0)


class Conversation:
    """One rollout's requests over the real OpenAI client."""

    def __init__(self, url, item_id, *, index=0, attempt=1, question="?", key="none", timeout=5.0):
        self.client = connect(url, key)
        self.options = {
            "model": "any",
            "timeout": timeout,
            "extra_headers": {"X-Session-Id": session_id("run", item_id, index, attempt)},
        }
        self.messages = [{"role": "user", "content": question}]

    def ask(self, **options):
        """One request; nothing of its reply is kept."""
        return self.client.chat.completions.create(messages=self.messages, **self.options, **options)

    def turn(self):
        """One turn: the reply, and a made-up result for each of its calls, join the conversation."""
        message = self.ask().choices[0].message
        self.messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})
        return message
