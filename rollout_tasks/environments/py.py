"""A Python interpreter as a tool, in a sandbox. Scores come from comparing the answer."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.environments.sandbox.bubblewrap import SandboxUnavailable
from rollout_tasks.environments.sandbox.interpreter import CodeRefused, Interpreter, InterpreterStopped

PYTHON = Tool(
    name="python_interpreter",
    description=(
        "Runs Python code, one expression or block after the other, in a namespace that lasts through the whole task. "
        "Returns what was printed and the value of each block's last expression. Standard library only; no network, no "
        "subprocesses or threads, files only in the current folder."
    ),
    parameters={
        "type": "object",
        "properties": {
            "expressions": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "The code, as in ['import math', 'math.comb(10, 3)'].",
            }
        },
        "required": ["expressions"],
        "additionalProperties": False,
    },
)

INSTRUCTIONS = (
    "Solve the problem step by step. Use the Python interpreter wherever computing beats reasoning. When you are done, "
    "answer without calling a tool; end with the final result."
)

LOST = "Variables and imports are lost; the next call starts anew."


class PyEnvironment(Environment):
    """Problems with a Python interpreter."""

    needs_vm: ClassVar[bool] = False
    compares_answers: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.py"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:  # noqa: ARG002
        """Starts nothing yet: many episodes never run code."""
        self._interpreter: Interpreter | None = None

    @classmethod
    def check_available(cls) -> None:
        """Runs code in a sandbox to test the isolation, once per process."""
        reason = _reason_against_isolation()
        if reason is not None:
            raise RuntimeError(reason)

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return INSTRUCTIONS

    def tools(self) -> list[Tool]:
        """Returns the interpreter."""
        return [PYTHON]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        """Returns an empty observation."""
        return Observation()

    def execute(self, call: ToolCall) -> ToolResult:
        """Runs the code; ``failed`` if it raises, or exceeds a limit, which ends the interpreter."""
        if self._interpreter is None:
            self._interpreter = Interpreter()
        try:
            output = self._interpreter.run(list(call.arguments["expressions"]))
        except CodeRefused as refusal:
            return ToolResult("failed", str(refusal))
        except InterpreterStopped as stopped:
            self._interpreter = None
            return ToolResult("failed", f"The interpreter was stopped: {stopped}. {LOST}")
        text = output.text.rstrip("\n")
        if output.not_run:
            text += f"\n({output.not_run} more not run)"
        return ToolResult("success" if output.ok else "failed", text or "(no output)")

    def evaluate(self) -> float | None:
        """Returns None: the answer is compared."""
        return None

    def close(self) -> None:
        """Stops the interpreter."""
        if self._interpreter is not None:
            self._interpreter.stop()
            self._interpreter = None


@lru_cache(maxsize=1)
def _reason_against_isolation() -> str | None:
    """Returns why the sandbox cannot be used here; None if its isolation works."""
    try:
        interpreter = Interpreter()
    except SandboxUnavailable as reason:
        return str(reason)
    try:
        output = interpreter.run(["import os", "os.fork()"])
    except InterpreterStopped as stopped:
        return f"the sandbox does not work here: {stopped}"
    finally:
        interpreter.stop()
    return None if "PermissionError" in output.text else "the sandbox does not hold here: its code can start processes"
