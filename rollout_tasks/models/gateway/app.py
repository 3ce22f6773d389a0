"""The gateway's endpoints: whose request it is, which API it speaks, and what the session answers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from rollout_tasks.models.gateway import chat, messages_api, responses_api
from rollout_tasks.models.gateway.client_api import ClientApi, ClientRequest, event
from rollout_tasks.models.gateway.connection import ClientGone, Connection, Headers, TooLargeError
from rollout_tasks.models.gateway.engine import EngineError
from rollout_tasks.models.gateway.json_body import BadBodyError, read_object
from rollout_tasks.models.gateway.refused import Refused
from rollout_tasks.models.gateway.session import Session

logger = logging.getLogger(__name__)

_SESSIONS = "/sessions"
_PREFIX = f"{_SESSIONS}/"
_LARGEST_ORDER = 64 << 10
"""Bytes of a request that opens a session."""
_APIS: Mapping[str, ClientApi] = {
    "/v1/chat/completions": chat.CHAT,
    "/v1/responses": responses_api.RESPONSES,
    "/v1/messages": messages_api.MESSAGES,
}
_METHODS = {**dict.fromkeys(_APIS, "POST"), "/v1/models": "GET", "/reward": "POST", "/trace": "GET"}
_NO_RETRY: Headers = [(b"x-should-retry", b"false")]
"""The official clients heed it: the gateway has made all the tries that there are to be."""
_CLOSE: Headers = [(b"connection", b"close")]


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A session and its key."""

    session: Session
    token_digest: bytes


class SessionOpener(Protocol):
    """Opens and closes sessions for programs that ask for it over HTTP."""

    def owner(self, token: bytes) -> str | None:
        """Returns whose token this is; None if it is nobody's."""

    def open(self, owner: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Opens a session; returns where it is and its token. Raises `Refused` if what is wanted cannot be had."""

    def listed(self, owner: str) -> dict[str, Any]:
        """Returns the open sessions of an owner."""

    def close(self, owner: str, name: str) -> dict[str, Any]:
        """Closes one of an owner's sessions; returns what happened in it. Raises `Refused` if there is none of this name."""


class GatewayApp:
    """The ASGI application over a mapping of sessions, to which others are added while it runs."""

    def __init__(self, sessions: Mapping[str, OpenedSession], opener: SessionOpener | None = None) -> None:
        self._sessions = sessions
        self._opener = opener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        connection = Connection(scope, receive, send)
        suffix = next((known for known in _METHODS if connection.path[len(_PREFIX) :].endswith(known)), "")
        api = _APIS.get(suffix, chat.CHAT)
        session = None
        try:
            if self._opener is not None and _is_of_sessions(connection.path):
                await self._operate(self._opener, connection)
                return
            session = self._session(connection, suffix)
            await self._answer(session, suffix, api, connection)
        except ClientGone:
            await connection.cut()
        except Refused as refused:
            if session is not None:
                session.refuse(str(refused))
            headers = _NO_RETRY if refused.status not in {408, 413} else [*_NO_RETRY, *_CLOSE]
            await _fail(connection, api, refused.status, str(refused), refused.code, headers)
        except EngineError as error:
            await _fail(connection, api, error.status, str(error), error.code, _NO_RETRY)
        except Exception:  # a defect here: the client is answered, and the server goes on
            logger.exception("the model gateway failed at a request")
            if session is not None:
                session.broken("the model gateway failed at a request: the log says why")
            await _fail(connection, api, 500, "the model gateway failed at this request", "", _NO_RETRY)

    def _session(self, connection: Connection, suffix: str) -> Session:
        """Returns the session that a request names and has the key of."""
        path = connection.path
        opened = self._sessions.get(path[len(_PREFIX) : -len(suffix)]) if suffix and path.startswith(_PREFIX) else None
        if opened is None:
            what = "there is no such session"
            if not suffix or not path.startswith(_PREFIX):
                what = (
                    "there is no such address: clients of OpenAI's API take base_url, those of Anthropic's messages_url"
                )
            raise Refused(404, what, "not_found")
        token = _token(connection)
        if not hmac.compare_digest(hashlib.sha256(token).digest(), opened.token_digest):
            raise Refused(401, "the session's token is missing or wrong", "invalid_api_key")
        if connection.method != _METHODS[suffix]:
            raise Refused(405, f"the method must be {_METHODS[suffix]}")
        if opened.session.closed:
            raise Refused(409, f"session {opened.session.id} is closed", "session_closed")
        return opened.session

    async def _operate(self, opener: SessionOpener, connection: Connection) -> None:
        """Opens, lists or closes sessions."""
        owner = opener.owner(_token(connection))
        if owner is None:
            raise Refused(401, "the service's token is missing or wrong", "invalid_api_key")
        name = connection.path.removeprefix(_SESSIONS).removeprefix("/")
        if name and connection.method == "DELETE":
            await connection.respond(200, await asyncio.to_thread(opener.close, owner, name))
        elif not name and connection.method == "GET":
            await connection.respond(200, await asyncio.to_thread(opener.listed, owner))
        elif not name and connection.method == "POST":
            body = await _read_body(connection, _LARGEST_ORDER)
            await connection.respond(201, await asyncio.to_thread(opener.open, owner, body))
        else:
            allowed = "DELETE" if name else "GET or POST"
            raise Refused(405, f"the method must be {allowed}")

    async def _answer(self, session: Session, suffix: str, api: ClientApi, connection: Connection) -> None:
        if suffix == "/trace":
            await connection.respond(200, session.trace())
        elif suffix == "/v1/models":
            model = {"id": session.engine.model, "object": "model", "created": 0, "owned_by": "gateway"}
            await connection.respond(200, {"object": "list", "data": [model]})
        elif suffix == "/reward":
            await session.set_reward((await _body(session, connection)).get("reward"))
            await connection.respond(200, {"reward": session.reward})
        else:
            body = await _body(session, connection)
            client_request = api.read(body, session.memory, session.limits.request_bytes)
            await _watched(_call(session, api, client_request, connection), connection)


def _is_of_sessions(path: str) -> bool:
    """Whether a path is that of all sessions, or of one and nothing below it."""
    return path == _SESSIONS or (path.startswith(_PREFIX) and "/" not in path.removeprefix(_PREFIX))


async def _body(session: Session, connection: Connection) -> dict[str, Any]:
    most = session.limits.bodies_at_once
    if session.bodies >= most:
        raise Refused(429, f"session {session.id} sends {most} requests already, the most at a time")
    session.bodies += 1
    try:
        return await _read_body(connection, session.limits.request_bytes)
    except ClientGone as error:
        session.refuse(str(error))
        raise
    finally:
        session.bodies -= 1


def _token(connection: Connection) -> bytes:
    scheme, _, bearer = connection.header(b"authorization").partition(b" ")
    return bearer.strip() if scheme.lower() == b"bearer" else connection.header(b"x-api-key")


async def _read_body(connection: Connection, most: int) -> dict[str, Any]:
    length = connection.header(b"content-length")
    if connection.header(b"content-encoding") not in {b"", b"identity"}:
        raise Refused(415, "the body must not be compressed")
    try:
        body = await connection.body(most)
        return read_object(body)
    except TooLargeError as error:
        raise Refused(413, str(error), "request_too_large") from error
    except TimeoutError as error:
        raise Refused(
            408, f"the body of {length.decode('latin-1')[:20] or 'unknown'} bytes did not come in time"
        ) from error
    except BadBodyError as error:
        raise Refused(400, str(error)) from error


async def _call(session: Session, api: ClientApi, client_request: ClientRequest, connection: Connection) -> None:
    live = api.live(client_request)

    async def pass_on(piece: dict[str, Any]) -> None:
        assert live is not None  # noqa: S101 - else it is not called
        for data in live.events(piece):
            await connection.stream(data)

    call_id, answer = await session.call(api.name, client_request.request, pass_on if live else None)
    session.memory.keep(answer.reply)
    if live is not None and connection.streaming:
        await connection.stream(live.end(answer), more=False)
        return
    reply = api.reply(client_request, answer, call_id, session.memory)
    if not client_request.stream:
        await connection.respond(200, reply)
        return
    await connection.stream(b"".join(api.events(reply, client_request)), more=False)


async def _watched(work: Any, connection: Connection) -> None:
    """Awaits the work, and cancels it when the client goes away."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(connection.gone())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            return
        with suppress(asyncio.CancelledError):  # the session was closed
            task.result()
            return
        raise Refused(409, "the session was closed during the call", "session_closed")
    finally:
        for one in (task, gone):
            one.cancel()


async def _fail(
    connection: Connection, api: ClientApi, status: int, sentence: str, code: str, headers: Headers
) -> None:
    """Sends an error in the API's own shape; in a stream that was begun, as its last event."""
    error = api.error(status, sentence, code)
    try:
        if connection.streaming:
            await connection.stream(event(error, api.error_event), more=False)
        else:
            await connection.respond(status, error, headers)
    except ClientGone:
        await connection.cut()
