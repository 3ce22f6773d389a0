"""A stand-in for a search service, called one: it speaks all three protocols, finds what it was told, and checks keys."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.hostile.random_replies.answers import Answer, AnswerServer, Request, Sent

KEY = "stand-in-key-0123456789"
FOUND = [
    ("The Tide Museum", "https://museum.example/tide", "Founded in 1887 by Ida Marsh."),
    ("Harbour", "https://harbour.example/", "Tides for 200 years."),
    ("Elsewhere", "https://elsewhere.example/page", "Something else."),
]


class StandInSearch:
    """Runs until `close`."""

    def __init__(self) -> None:
        self.found = list(FOUND)
        self.queries: list[str] = []
        self.instead: list[Sent] = []
        """Answers in place of the next ones."""
        self._server = AnswerServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}"

    def close(self) -> None:
        """Ends it."""
        self._server.close()
        assert self._server.mistakes == []

    def _answer(self, request: Request) -> Sent:
        if self.instead:
            return self.instead.pop(0)
        parts = urlsplit(request.path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        if parts.path != "/search":
            return Answer(b"{}", status=404)
        if not request.body:
            return self._searxng(parse_qs(parts.query))
        asked = json.loads(request.body)
        if "q" in asked:
            return self._serper(asked, headers.get("x-api-key"))
        return self._tavily(asked, headers.get("authorization"))

    def _searxng(self, asked: dict[str, list[str]]) -> Answer:
        if asked.get("format") != ["json"]:
            return Answer(b"", status=403)
        self.queries += asked["q"]
        return _json(
            {"query": asked["q"][0], "results": [{"title": t, "url": u, "content": c} for t, u, c in self.found]}
        )

    def _serper(self, asked: dict[str, Any], key: str | None) -> Answer:
        if key != KEY:
            return Answer(b'{"message": "Unauthorized."}', status=403)
        self.queries.append(asked["q"])
        found = [{"title": t, "link": u, "snippet": c, "position": n} for n, (t, u, c) in enumerate(self.found, 1)]
        return _json({"searchParameters": asked, "organic": found[: asked["num"]], "credits": 1})

    def _tavily(self, asked: dict[str, Any], authorization: str | None) -> Answer:
        if authorization != f"Bearer {KEY}":
            return Answer(b'{"detail": {"error": "Unauthorized"}}', status=401)
        self.queries.append(asked["query"])
        found = [{"title": t, "url": u, "content": c, "score": 0.9} for t, u, c in self.found]
        return _json({"query": asked["query"], "results": found[: asked["max_results"]], "response_time": 0.1})


def _json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode())
