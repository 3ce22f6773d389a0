"""The built-in profiles: as OSWorld's official agents and their runners have them, with texts that are read from desktop-env.

That of Qwen3.5 (qwen_3_5.py) is this project's own.
"""

from __future__ import annotations

from rollout_tasks.agents.profiles.agent import profile_agent
from rollout_tasks.agents.profiles.coordinates import QWEN_3, QWEN_25, UI_TARS, Resizing, Rounding
from rollout_tasks.agents.profiles.profile import (
    History,
    PackagedText,
    Pictures,
    Places,
    Profile,
    Prompts,
    Resize,
    Sampling,
)
from rollout_tasks.agents.profiles.qwen import GRID
from rollout_tasks.agents.profiles.qwen_3_5 import QWEN35

MAX_SECONDS = 7_200.0
"""72 s for each of 100 steps. The official runners have no limit, so none may cost an episode that is at work its score: most
steps take 10 to 40 s with the model's reply, the pause and the screenshot. A limit is needed, as a VM must not be lost to an
episode that hangs."""


def _resize(resizing: Resizing) -> Resize:
    return Resize(factor=resizing.factor, fewest_pixels=resizing.fewest_pixels, most_pixels=resizing.most_pixels)


_QWEN_3, _QWEN_25, _UI_TARS = "mm_agents.qwen3vl_agent", "mm_agents.qwen25vl_agent", "mm_agents.uitars15_v1"
_UI_TARS_2, _OPENCUA = "mm_agents.uitars15_v2", "mm_agents.opencua.prompts"

QWEN3_VL = Profile(
    name="qwen3-vl",
    version="1",
    protocol="qwen",
    prompts=Prompts(
        system=PackagedText(
            module=_QWEN_3, name="Qwen3VLAgent.predict.system_prompt", values={"self.coordinate_type": "relative"}
        ),
        task=PackagedText(
            module=_QWEN_3,
            name="Qwen3VLAgent.predict.instruction_prompt",
            values={"previous_actions_str": "{previous_actions}"},
        ),
        task_with="first_picture",
        older_step="Step {number}: {action}",
        no_older_steps="None",
        unnamed_action="Performing {kind} action",
    ),
    history=History(images=5, older="action"),
    pictures=Pictures(format="png", resize=_resize(QWEN_3)),
    places=Places(span="grid", grid=GRID),
    sampling=Sampling(max_tokens=32_768),
    max_steps=100,
    max_seconds=MAX_SECONDS,
    context_length=49_152,
)
"""Temperature and top_p are the endpoint's: the official agent does not send them to endpoints of this kind."""

QWEN25_VL = Profile(
    name="qwen2.5-vl",
    version="1",
    protocol="qwen",
    prompts=Prompts(
        system=PackagedText(module=_QWEN_25, name="Qwen25VLAgent.predict.system_prompt"),
        task=PackagedText(
            module=_QWEN_25,
            name="Qwen25VLAgent.predict.instruction_prompt",
            values={"previous_actions_str": "{previous_actions}"},
        ),
        task_with="first_picture",
        older_step="Step {number}: {action}",
        no_older_steps="None",
        unnamed_action="Performing {kind} action",
    ),
    history=History(images=5, older="action", whole_line=True),
    pictures=Pictures(format="png", resize=_resize(QWEN_25)),
    places=Places(span="picture"),
    sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=1_500),
    max_steps=100,
    max_seconds=MAX_SECONDS,
    context_length=24_576,
)

UITARS_15 = Profile(
    name="uitars-1.5",
    version="1",
    protocol="ui_tars",
    prompts=Prompts(
        system="You are a helpful assistant.",
        task=PackagedText(
            module=_UI_TARS,
            name="UITARS_USR_PROMPT_THOUGHT",
            values={
                "action_space": PackagedText(module=_UI_TARS, name="UITARS_NORMAL_ACTION_SPACE"),
                "language": "Chinese",
            },
        ),
    ),
    history=History(images=5, older="reply", box_tokens=True),
    pictures=Pictures(
        format="png",
        resize=Resize(factor=1, fewest_pixels=UI_TARS.fewest_pixels, most_pixels=UI_TARS.most_pixels),
    ),
    places=Places(span="resized", resize=_resize(UI_TARS), rounding=Rounding.THOUSANDTHS_DOWN),
    sampling=Sampling(temperature=1.0, top_p=0.9, max_tokens=500, extra={"frequency_penalty": 1}),
    max_steps=100,
    max_seconds=MAX_SECONDS,
    context_length=32_768,
    user_calls=3,
    after_unusable="resample",
)

UITARS_2 = Profile(
    name="uitars-2",
    version="1",
    protocol="ui_tars",
    prompts=Prompts(
        task=PackagedText(module=_UI_TARS_2, name="COMPUTER_USE_DOUBAO", values={"language": "Chinese"}),
        text_in_parts=False,
    ),
    history=History(images=5, older="reply"),
    places=Places(span="grid", grid=(1000, 1000), rounding=Rounding.THOUSANDTHS_DOWN),
    sampling=Sampling(temperature=0.0, top_p=0.9, max_tokens=3_000, extra={"thinking": {"type": "enabled"}}),
    max_steps=100,
    max_seconds=MAX_SECONDS,
    context_length=65_536,
)

OPENCUA = Profile(
    name="opencua",
    version="1",
    protocol="thought_action_code",
    prompts=Prompts(
        system=PackagedText(
            module=_OPENCUA,
            name="SYSTEM_PROMPT_V2_L2",
            values={
                "general_computer_instruction": PackagedText(
                    module=_OPENCUA,
                    name="general_computer_instructions[0]",
                    values={"password": "{client_password}"},
                ),
                "format_instruction": PackagedText(module=_OPENCUA, name="l2_format_instruction"),
                "thought_instruction": PackagedText(module=_OPENCUA, name="thought_instructions[0]"),
                "action_instruction": PackagedText(module=_OPENCUA, name="action_instructions[0]"),
                "code_instruction": PackagedText(module=_OPENCUA, name="code_instrucion"),
            },
        ),
        task=PackagedText(module=_OPENCUA, name="INSTRUTION_TEMPLATE"),
        task_with="current_picture",
        step=(
            PackagedText(module=_OPENCUA, name="STEP_TEMPLATE", values={"step_num": "{number}"}),
            PackagedText(module=_OPENCUA, name="ACTION_HISTORY_TEMPLATE"),
        ),
        text_in_parts=False,
    ),
    history=History(images=3, older="action"),
    places=Places(span="resized", resize=_resize(QWEN_25), rounding=Rounding.SHARE_DOWN),
    sampling=Sampling(temperature=0.0, top_p=0.9, max_tokens=2_048),
    max_steps=100,
    max_seconds=MAX_SECONDS,
    context_length=24_576,
)
"""OpenCUA-72B. The smaller models were trained with another system prompt."""

OPENAI_CUA = Profile(
    name="openai-cua",
    version="1",
    protocol="responses_computer",
    prompts=Prompts(
        task=(
            "\n        {instruction}",
            PackagedText(
                module="mm_agents.openai_cua_agent",
                name="OPERATOR_PROMPT",
                values={"CLIENT_PASSWORD": "{client_password}"},
            ),
        ),
    ),
    computer_tool="computer_use_preview",
    history=History(images=None),
    places=Places(span="screen"),
    sampling=Sampling(extra={"truncation": "auto", "reasoning": {"generate_summary": "concise"}}),
    max_steps=100,
    max_seconds=MAX_SECONDS,
)
"""The Responses API with ``computer_use_preview``. What a prompt has too much of, the endpoint leaves out (``truncation``)."""

CLAUDE = Profile(
    name="claude",
    version="1",
    protocol="anthropic_computer",
    computer_tool="computer_20250124",
    prompts=Prompts(
        system=PackagedText(
            module="mm_agents.anthropic.utils",
            name="SYSTEM_PROMPT",
            values={"datetime.today().strftime('%A, %B %d, %Y')": "{date}"},
        ),
        task="{instruction}",
    ),
    history=History(images=10),
    pictures=Pictures(format="png", size=(1280, 720)),
    places=Places(span="picture"),
    sampling=Sampling(max_tokens=4_096, extra={"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
    max_steps=100,
    max_seconds=MAX_SECONDS,
)
"""Anthropic's own API. Newer models want `computer_20251124`."""

_ALL = (UITARS_15, UITARS_2, QWEN25_VL, QWEN3_VL, QWEN35, OPENCUA, OPENAI_CUA, CLAUDE)
BUILT_IN = {profile.name: profile for profile in _ALL}


ClaudeAgent = profile_agent(CLAUDE)
OpenAICUAAgent = profile_agent(OPENAI_CUA)
OpenCUAAgent = profile_agent(OPENCUA)
Qwen25VLAgent = profile_agent(QWEN25_VL)
Qwen3VLAgent = profile_agent(QWEN3_VL)
Qwen35Agent = profile_agent(QWEN35)
UITars15Agent = profile_agent(UITARS_15)
UITars2Agent = profile_agent(UITARS_2)
