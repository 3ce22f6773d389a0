"""What a vLLM server is told besides the calls of its model: to pause, to load other weights, to forget what it computed.

Source: vllm.entrypoints.rl and vllm.entrypoints.serve.dev, which vLLM has with VLLM_SERVER_DEV_MODE=1 (seen with 0.32).
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

_SECONDS = 60.0
_FORGET_SECONDS, _FORGET_PAUSE = 60.0, 0.5
_LOAD_SECONDS = 1800.0
"""A large checkpoint on a shared disk takes minutes."""
_MOST_OF_ANSWER = 64 << 20
"""Bytes of a reply; one line of checksum for each tensor."""


class ControlFailed(Exception):
    """A server did not do what it was told."""


class VllmControl:
    """One server."""

    def __init__(self, base_url: str, secret: str) -> None:
        """Sends nothing yet.

        Args:
            base_url: Its endpoint, which ends with /v1.
            secret: What vllm_plugin/rollouts_control_guard.py asks for there.
        """
        self._root = base_url.removesuffix("/v1")
        self._secret = secret

    def pause(self, *, in_flight: bool) -> None:
        """Has it begin no step any more: in the middle of its calls, or when it has finished them."""
        self._post(f"/pause?mode={'keep' if in_flight else 'wait'}&clear_cache=false", seconds=_LOAD_SECONDS)

    def resume(self) -> None:
        """Has it go on."""
        self._post("/resume")

    def load(self, checkpoint: str) -> None:
        """Has it read another checkpoint's weights."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": checkpoint}}
        self._post("/collective_rpc", body, _LOAD_SECONDS)

    def forget(self, *, in_flight: bool) -> None:
        """Has it forget what it computed with the weights before: of prompts, also of those under way, and of pictures.

        Args:
            in_flight: Whether it has calls: their prompts are computed anew, and their pictures are kept as they came.

        Raises:
            ControlFailed: It did not.
        """
        running = "true" if in_flight else "false"
        deadline = time.monotonic() + _FORGET_SECONDS
        while not self._forgot(f"/reset_prefix_cache?reset_running_requests={running}&reset_external=true", deadline):
            time.sleep(_FORGET_PAUSE)
        if not in_flight:
            self._post("/reset_mm_cache")
        self._post("/reset_encoder_cache")

    def _forgot(self, path: str, deadline: float) -> bool:
        """Has it forget its prompts; it cannot while blocks of them are being moved."""
        try:
            if self._post(path).get("success") is True:
                return True
        except ControlFailed:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise ControlFailed("it did not forget the prompts that it had computed with the weights before")
        return False

    def name_weights(self, version: str) -> None:
        """Tells it what its weights are called."""
        self._post("/update_weight_version", {"new_version": version})

    def checksum(self) -> str:
        """Returns a checksum of all weights that it holds."""
        checksums = self._post("/weight_checker", {"action": "checksum"}, _LOAD_SECONDS).get("checksums")
        if not isinstance(checksums, dict) or not checksums:
            raise ControlFailed("it gave no checksums of its weights")
        return hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()

    def _post(self, path: str, body: Any = None, seconds: float = _SECONDS) -> dict[str, Any]:
        """Returns the reply to a request, an object; an empty one if it says no more than that it worked.

        Raises:
            ControlFailed: There was none in time, or it says that it did not work.
        """
        import httpx2  # slow to import, and few servers get other weights

        what = path.partition("?")[0]
        try:
            with (
                httpx2.Client(
                    headers={"Authorization": f"Bearer {self._secret}"}, timeout=seconds, trust_env=False
                ) as http,
                http.stream("POST", f"{self._root}{path}", json=body) as response,
            ):
                content = b""
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > _MOST_OF_ANSWER:
                        raise ControlFailed(f"{what} was answered with more than {_MOST_OF_ANSWER:,} bytes")
        except (httpx2.HTTPError, OSError) as error:
            raise ControlFailed(f"{what} was not answered ({type(error).__name__})") from error
        if response.status_code != 200:
            raise ControlFailed(
                f"{what} was answered with HTTP {response.status_code}: {content[:300].decode(errors='replace')}"
            )
        try:
            answer = json.loads(content or b"{}")
        except ValueError:
            raise ControlFailed(f"{what} was not answered with JSON") from None
        return answer if isinstance(answer, dict) else {}
