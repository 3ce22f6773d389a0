"""The service's operations, and the OpenAPI document that is made from them: what is served is what is described."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rollout_tasks.service.lending.http_requests import Handler
from rollout_tasks.service.lending.messages import Problem

_REFERENCE = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_OF_TOKENS = (401, 403, 429)
"""The last: too many requests at a time, see `open_requests`."""
_OF_BODIES = (400, 408, 413, 422)
_OF_FAILURES = (503,)
_TAKES_BODIES = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a client can ask for."""

    method: str
    path: str
    handler: Handler
    summary: str
    replies: Mapping[int, type[BaseModel] | str]
    """What is answered, by status: a message, or a media type."""
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    refusals: Sequence[int] = ()
    """Statuses of refusals, besides those that all such operations have."""
    needs_token: bool = True
    problem: type[BaseModel] = Problem
    """What a refusal looks like."""
    safe: bool = True
    """Of a GET: whether it changes nothing, so that HEAD is served, too."""
    described: bool = True
    """Whether the document has it."""

    def all_refusals(self) -> list[int]:
        """Returns every status with which it may be refused."""
        found = {*self.refusals, *_OF_FAILURES}
        found |= set(_OF_TOKENS) if self.needs_token else set()
        found |= set(_OF_BODIES) if self.body is not None or self.method in _TAKES_BODIES else set()
        found |= {422} if self.query is not None else set()
        return sorted(found)

    def messages(self) -> list[type[BaseModel]]:
        """Returns all messages that it takes or gives."""
        given = [one for one in self.replies.values() if not isinstance(one, str)]
        return [*given, *((self.body,) if self.body else ()), self.problem]


def routes(operations: Sequence[Operation]) -> list[Route]:
    """Returns where operations are served: one route for each path, which knows all its methods."""
    paths: dict[str, dict[str, Handler]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method] = one.handler
    served = {path: Route(path, _by_method(handlers), methods=[*handlers]) for path, handlers in paths.items()}
    for one in operations:
        if not one.safe:
            (served[one.path].methods or set()).discard("HEAD")  # which Starlette adds to each GET
    return [*served.values()]


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    async def answer(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return answer


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the OpenAPI document of operations, as JSON values."""
    described = [one for one in operations if one.described]
    kinds = list(dict.fromkeys(kind for one in described for kind in one.messages()))
    sent = {one.body for one in described if one.body}
    modes: Any = [(kind, "validation" if kind in sent else "serialization") for kind in kinds]
    _, schemas = models_json_schema(modes, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for one in described:
        paths.setdefault(_PATH_PARAMETER.sub(r"{\1}", one.path), {})[one.method.lower()] = _described(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Desktops",
            "version": version("computer-use-rollouts"),
            "description": "Lends pooled desktops to agents. Calls may be repeated, as replies get lost; acquiring with a key.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(one: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {
        "summary": one.summary,
        "operationId": f"{one.method.lower()}{re.sub(r'[^a-z]+', '_', one.path)}".rstrip("_"),
        "parameters": [*_path_parameters(one.path), *_query_parameters(one.query)],
        "responses": {
            **{str(status): _reply(status, kind) for status, kind in one.replies.items()},
            **{str(status): _reply(status, one.problem) for status in one.all_refusals()},
        },
        "security": [{"token": []}] if one.needs_token else [],
    }
    if one.body is not None:
        content = {"application/json": {"schema": _reference(one.body)}}
        said["requestBody"] = {"content": content, "required": bool(_required(one.body))}
    return said


def _required(kind: type[BaseModel]) -> list[str]:
    return [name for name, field in kind.model_fields.items() if field.is_required()]


def _path_parameters(path: str) -> list[dict[str, Any]]:
    schema = {"type": "string"}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _PATH_PARAMETER.findall(path)]


def _query_parameters(kind: type[BaseModel] | None) -> list[dict[str, Any]]:
    if kind is None:
        return []
    properties = kind.model_json_schema(ref_template=_REFERENCE)["properties"]
    needed = _required(kind)
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": schema}
        for name, schema in properties.items()
    ]


def _reply(status: int, kind: type[BaseModel] | str) -> dict[str, Any]:
    media = {kind: {"schema": {"type": "string", "format": "binary"}}} if isinstance(kind, str) else None
    content = media or {"application/json": {"schema": _reference(kind)}}  # type: ignore[arg-type]
    return {"description": HTTPStatus(status).phrase, "content": content}


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=kind.__name__)}
