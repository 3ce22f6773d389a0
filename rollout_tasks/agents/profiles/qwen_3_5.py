"""The profile for Qwen3.5, for which OSWorld has no agent: its texts are this project's own.

The model writes its calls as ``<function=...>`` with ``<parameter=...>`` inside ``<tool_call>``, as in its chat template, on the
same grid as Qwen3-VL. Its makers send the newest screenshots and a note for each older one.
"""

from __future__ import annotations

from rollout_tasks.agents.profiles.coordinates import QWEN_3
from rollout_tasks.agents.profiles.profile import History, Pictures, Places, Profile, Prompts, Resize, Sampling
from rollout_tasks.agents.profiles.qwen import GRID

_SYSTEM = """You carry out tasks on a computer. You see screenshots of it, and act with mouse and keyboard by calling a tool.

# Tool

You may call the function computer_use, one call at a time. Its parameters:

- action: what to do, one of those below.
- coordinate: [x, y], a place on the screen. x goes from 0 at the left edge to 999 at the right edge, y from 0 at the top to 999 \
at the bottom, whatever the size of the screen.
- text: what to type, or a text for the user.
- keys: the names of keys, as in ["ctrl", "c"].
- pixels: how far to turn the wheel; above 0 is up, below 0 is down.
- time: seconds.
- status: success or failure.

Its actions:

- left_click, right_click, middle_click, double_click, triple_click: click at coordinate.
- mouse_move: move the pointer to coordinate.
- left_click_drag: hold the left button from where the pointer is, move to coordinate, let it go.
- scroll, hscroll: turn the wheel by pixels, at coordinate if given.
- type: type text.
- key: press keys together.
- wait: wait for time, so that the screen can change.
- answer: tell the user text, where the task asks for an answer.
- terminate: end the task with status: success if it is done, failure if it cannot be done.

Write a call like this, and nothing after it:

<tool_call>
<function=computer_use>
<parameter=action>
left_click
</parameter>
<parameter=coordinate>
[500, 250]
</parameter>
</function>
</tool_call>

# How to work

- Before each call, say in one line that begins with "Action:" what you are about to do.
- After each call you get a new screenshot. Look whether the call did what you wanted before you go on.
- Click in the middle of what you want to click.
- Nobody can answer questions. Do only what the task asks for, and end with terminate.
- If a password is asked for, it is {client_password}.
- Today is {date}."""

QWEN35 = Profile(
    name="qwen3.5",
    version="1",
    protocol="qwen",
    prompts=Prompts(
        system=_SYSTEM,
        task="Task: {instruction}",
        unnamed_action="Performing {kind} action",
        text_in_parts=False,
    ),
    history=History(images=5, older="placeholder", thinking=False),
    pictures=Pictures(
        format="png",
        resize=Resize(factor=QWEN_3.factor, fewest_pixels=QWEN_3.fewest_pixels, most_pixels=QWEN_3.most_pixels),
    ),
    places=Places(span="grid", grid=GRID),
    sampling=Sampling(max_tokens=32_768),
    max_steps=100,
    max_seconds=7_200.0,
    context_length=65_536,
)
"""Temperature and top_p are the endpoint's. It has room for 100 replies of 200 tokens beside the pictures and one reply."""
