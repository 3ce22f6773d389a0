"""Every command line and every option that the docs or a message names is one that the real command has.

An option that is named alone belongs to a command that the same paragraph or table row names, or to `rollouts run` or `submit`; or
`OWNERS` says whose it is. In messages, which are sentences, it may be of the command that the module is a part of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.cli.main import SUBCOMMANDS
from tests.conftest import REPOSITORY
from tests.unit.cli.real_commands import commands_of, has_option, problem, python_files, resolved, spelled_options

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    if path.name != "CHANGELOG.md"  # says what there was at its time
)
PACKAGES = ("rollout_tasks", "vm_pool", "benchmark", "desktop_image", "scripts", "tools")

OTHER_PROGRAMS = {
    "apt-get": "Debian's",
    "bash": "a shell's",
    "cat": "a shell's",
    "cd": "a shell's",
    "cp": "a shell's",
    "curl": "curl's",
    "docker": "Docker's own commands",
    "echo": "a shell's",
    "export": "a shell's",
    "git": "git's",
    "kill": "a shell's",
    "mkdir": "a shell's",
    "openenv": "OpenEnv's",
    "openssl": "OpenSSL's",
    "mkdocs": "of the docs' site",
    "pre-commit": "of contributors",
    "python": "a line of Python, or another package's module",
    "sleep": "a shell's",
    "source": "a shell's",
    "ssh": "OpenSSH's",
    "sysctl": "Linux's",
    "tail": "a shell's",
    "umask": "a shell's",
    "uv": "the installer's",
}
"""What a command block may call besides this project's commands."""

IMAGE = "rollouts image build"
WORKER = "celery -A rollout_tasks worker"
VM_HOST = "rollouts vm-host"
FLOWER = "celery -A rollout_tasks flower"
SCRIPTED = "rollouts scripted-model"
FAULTS = "python -m tests.faults"
SERVE = "rollouts model serve POOL CHECKPOINT"
COPY = "rollouts copy FROM TO"
QUICKSTART = "./scripts/quickstart.sh"
OWNERS: dict[tuple[str, str], str] = {
    ("README.md", "--light"): QUICKSTART,
    ("README.zh-CN.md", "--light"): QUICKSTART,
    ("docs/explanation/cost.md", "--suite"): IMAGE,
    ("docs/faults.md", "--jobs"): FAULTS,
    ("docs/faults.md", "--kind"): FAULTS,
    ("docs/faults.md", "--minutes"): FAULTS,
    ("docs/faults.md", "--monkey"): FAULTS,
    ("docs/faults.md", "--point"): FAULTS,
    ("docs/how-to/copies.md", "--follow"): COPY,
    ("docs/how-to/copies.md", "--retry-seconds"): COPY,
    ("docs/how-to/flower.md", "--auth"): FLOWER,
    ("docs/how-to/flower.md", "--auth_provider"): FLOWER,
    ("docs/how-to/flower.md", "--oauth2_key"): FLOWER,
    ("docs/how-to/models.md", "--corrupt"): SCRIPTED,
    ("docs/how-to/models.md", "--faults"): SCRIPTED,
    ("docs/how-to/models.md", "--in-flight"): "rollouts model reload POOL CHECKPOINT",
    ("docs/how-to/models.md", "--timeout"): "rollouts model reload POOL CHECKPOINT",
    ("docs/how-to/models.md", "--host"): SERVE,
    ("docs/how-to/models.md", "--logs"): SERVE,
    ("docs/how-to/models.md", "--json"): "rollouts model ask MODEL WORDS",
    ("docs/how-to/models.md", "--python"): "rollouts model try CHECKPOINT WORDS",
    ("docs/how-to/models.md", "--replicas"): SERVE,
    ("docs/how-to/models.md", "--yes"): "rollouts gpu clean",
    ("docs/how-to/models.md", "--script-file"): SCRIPTED,
    ("docs/how-to/runs.md", "--why"): "rollouts pool quarantine VM",
    ("docs/how-to/tuning.md", "--concurrency"): WORKER,
    ("docs/how-to/workers.md", "--address"): VM_HOST,
    ("docs/how-to/workers.md", "--concurrency"): WORKER,
    ("docs/how-to/workers.md", "--queues"): WORKER,
    ("docs/how-to/workers.md", "--vm-address"): WORKER,
    ("docs/local-desktops.md", "--address"): VM_HOST,
    ("docs/local-desktops.md", "--check"): IMAGE,
    ("docs/local-desktops.md", "--disk"): IMAGE,
    ("docs/local-desktops.md", "--font"): IMAGE,
    ("docs/local-desktops.md", "--host-id"): VM_HOST,
    ("docs/local-desktops.md", "--hostname"): WORKER,
    ("docs/local-desktops.md", "--keyring"): IMAGE,
    ("docs/local-desktops.md", "--list"): IMAGE,
    ("docs/local-desktops.md", "--mirror"): IMAGE,
    ("docs/local-desktops.md", "--package"): IMAGE,
    ("docs/local-desktops.md", "--profile"): IMAGE,
    ("docs/local-desktops.md", "--prune"): IMAGE,
    ("docs/local-desktops.md", "--remove"): IMAGE,
    ("docs/local-desktops.md", "--run"): IMAGE,
    ("docs/local-desktops.md", "--suite"): IMAGE,
    ("docs/local-desktops.md", "--vm-address"): WORKER,
    ("docs/troubleshooting.md", "--concurrency"): WORKER,
    ("docs/troubleshooting.md", "--hostname"): WORKER,
    ("docs/troubleshooting.md", "--queues"): WORKER,
}
"""Whose option it is, where the text around it names no command of this project that has it."""

COMMAND_OF: dict[str, str] = {
    "desktop_image/": IMAGE,
    "docs/how-to/compare.md": "rollouts compare",
    "docs/how-to/service-loop.md": "rollouts serve",
    "rollout_tasks/cli/compare.py": "rollouts compare",
    "rollout_tasks/cli/desktop_view.py": "rollouts desktops view LEASE",
    "rollout_tasks/cli/desktops.py": "rollouts desktops token make NAME",
    "rollout_tasks/cli/copy.py": COPY,
    "rollout_tasks/cli/export.py": "rollouts export RUN",
    "rollout_tasks/cli/gateway.py": "rollouts gateway",
    "rollout_tasks/cli/listening.py": "rollouts openenv",
    "rollout_tasks/cli/openenv.py": "rollouts openenv",
    "rollout_tasks/cli/gpu.py": "rollouts gpu clean",
    "rollout_tasks/cli/image.py": IMAGE,
    "rollout_tasks/cli/image_check.py": IMAGE,
    "rollout_tasks/cli/index.py": "rollouts index groups",
    "rollout_tasks/cli/model.py": SERVE,
    "rollout_tasks/cli/model_ask.py": "rollouts model ask MODEL WORDS",
    "rollout_tasks/cli/model_try.py": "rollouts model try CHECKPOINT WORDS",
    "rollout_tasks/cli/parted_rollouts.py": "rollouts compare",
    "rollout_tasks/cli/pool.py": "rollouts pool connect VM",
    "rollout_tasks/cli/question.py": "rollouts model ask MODEL WORDS",
    "rollout_tasks/cli/run_actions.py": "scripts/submit.py",
    "rollout_tasks/cli/serve.py": "rollouts serve",
    "rollout_tasks/cli/several_runs.py": "rollouts compare",
    "rollout_tasks/cli/stats.py": "rollouts stats",
    "rollout_tasks/cli/submit_script.py": "scripts/submit.py",
    "rollout_tasks/config.py": WORKER,
    "rollout_tasks/flower_login.py": FLOWER,
    "rollout_tasks/models/local_answer.py": "rollouts model try CHECKPOINT WORDS",
    "rollout_tasks/models/scripted/": SCRIPTED,
    "rollout_tasks/models/serving/": SERVE,
    "rollout_tasks/plots/": "rollouts compare",
    "rollout_tasks/runs/copies/": "rollouts export RUN",
    "rollout_tasks/training/sampling_policy.py": "rollouts serve",
    "rollout_tasks/training/service_loop/": "rollouts serve",
    "rollout_tasks/training/exports/": "rollouts export RUN",
    "rollout_tasks/worker/": WORKER,
    "scripts/bench/osworld_standins.py": "scripts/bench/osworld_standins.py run",
    "scripts/bench/osworld_tasks.py": "scripts/bench/osworld_tasks.py run",
    "tools/mutation/": "scripts/mutation.py",
    "tools/supply_chain/": "scripts/supply.py licences",
    "tools/supply_chain/command.py": "scripts/supply.py sbom",
    "vm_pool/": VM_HOST,
}
"""Whose options the messages of a module name, besides those of `rollouts run` and `submit`."""

OTHERS_OPTIONS = {
    "--add-subgids": "usermod's",
    "--add-subuids": "usermod's",
    "--aptopt": "mmdebstrap's",
    "--bind": "mount's",
    "--calc": "LibreOffice's",
    "--clear-groups": "setpriv's",
    "--daemon": "Thunar's",
    "--gpu-memory-utilization": "vLLM's",
    "--hash": "a lock file's",
    "--impress": "LibreOffice's",
    "--max-model-len": "vLLM's",
    "--no-sandbox": "Chromium's",
    "--pdeathsig": "setpriv's",
    "--privileged": "Docker's",
    "--regid": "setpriv's",
    "--require-hashes": "uv's",
    "--reuid": "setpriv's",
    "--rm": "docker compose's",
    "--security-opt": "Docker's",
    "--set": "date's",
    "--setup-hook": "mmdebstrap's",
    "--tensor-parallel-size": "vLLM's",
    "--utc": "date's",
    "--writer": "LibreOffice's",
}
"""Options of other programs, by whose they are."""

_FENCED = re.compile(r"^( *)```(?P<language>\w*)\n(?P<code>.*?)^ *```", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
DEFAULT = (["rollouts", "run"], ["rollouts", "submit"])


def paragraphs(text: str) -> Iterator[str]:
    """Splits prose: a table's row and a list's entry stand alone."""
    for part in re.split(r"\n\s*\n|\n(?=\s*[|*-] ?\S)", text):
        if part.strip():
            yield part


def words_of(line: str) -> list[list[str]]:
    """The commands of a code span; none where it is no shell, as a message in quotes."""
    try:
        return list(commands_of(line))
    except ValueError:
        return []


def lone_option_problems(file: str, options: list[str], named: list[list[str]]) -> Iterator[str]:
    of_module = [command.split() for place, command in COMMAND_OF.items() if file.startswith(place)]
    for option in options:
        owner = OWNERS.get((file, option))
        owners = [owner.split()] if owner else [*named, *of_module, *DEFAULT]
        if option not in OTHERS_OPTIONS and not any(has_option(one, option) for one in owners):
            yield f"{file}: {option} is an option of none of: {', '.join(' '.join(one) for one in owners)}"


def command_name(words: list[str]) -> list[str]:
    """The words of a command before its first option or argument in capitals."""
    start = 3 if words[:2] == ["celery", "-A"] else 0
    end = next(
        (i for i, word in enumerate(words) if i >= start and not re.fullmatch(r"[a-z][\w./-]*", word)), len(words)
    )
    return words[:end]


def block_problems(file: str, code: str) -> Iterator[str]:
    for words in commands_of(code):
        if resolved(words) is None:
            if not (Path(words[0]).name in OTHER_PROGRAMS or words[0].startswith("./scripts/")):
                yield f"{file}: {words[0]!r} is neither a command of this project nor among OTHER_PROGRAMS"
        elif wrong := problem(words):
            yield f"{file}: {' '.join(words)!r}: {wrong}"


def prose_problems(file: str, text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        named, alone = [], []
        for span in _SPAN.findall(paragraph):
            flat = " ".join(span.split()).strip()
            if flat.startswith("-"):
                alone += spelled_options(flat)
                continue
            ours = [words for words in words_of(flat) if resolved(words)]
            for words in ours:
                if wrong := problem(words):
                    yield f"{file}: `{flat}`: {wrong}"
                else:
                    named.append(command_name(words))
            if not ours and flat.split()[0] not in OTHER_PROGRAMS:
                alone += spelled_options(flat)
        yield from lone_option_problems(file, alone, named)


def page_problems(page: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found: list[str] = []
    for block in _FENCED.finditer(text):
        shell = block["language"] == "bash" or (not block["language"] and block["code"].startswith("python "))
        if shell:
            found += block_problems(page, block["code"])
        else:
            found += lone_option_problems(page, spelled_options(block["code"]), [])
    return found + list(prose_problems(page, _FENCED.sub("", text)))


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_name_commands_and_options_that_there_are(page: str) -> None:
    assert page_problems(page) == []


_SCRIPT = r"(?:submit|pool|vm_host|build_guest|rescore|prefetch|show_result|mutation|supply)\.py"
_IN_MESSAGE = re.compile(
    r"(?<![\w/.-])(?:(?:sudo )?(?:\.venv/bin/)?rollouts [a-z]|celery -A rollout_tasks |(?:python )?scripts/[\w/]+\.(?:py|sh)\b|"
    + _SCRIPT
    + r" )[^`;,)\n\[\]\"]*"
)


def strings_of(path: Path) -> Iterator[str]:
    """The strings of a module, with {} for what an f-string puts in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def message_problems(file: str, text: str) -> Iterator[str]:
    """What is wrong with commands in a sentence; where such a command ends cannot be told, so only its options count."""
    for match in _IN_MESSAGE.finditer(text):
        line = re.split(r"[.:](?: |$)|  ", match[0])[0].strip()
        for words in words_of(re.sub(f"^(?={_SCRIPT})", "scripts/", line)):
            of_sentence = words[0] == "rollouts" and words[1] not in SUBCOMMANDS  # as in "3 rollouts were cancelled"
            wrong = None if of_sentence else problem(words)
            if wrong and not re.search("takes no argument|requires an argument", wrong):
                yield f"{file}: {line!r}: {wrong}"
    yield from lone_option_problems(file, spelled_options(_IN_MESSAGE.sub("", text)), [])


def test_messages_name_commands_and_options_that_there_are() -> None:
    found = []
    for path in python_files(*PACKAGES):
        file = path.relative_to(REPOSITORY).as_posix()
        for text in strings_of(path):
            if re.search(r"\s", text.strip()):
                found += message_problems(file, text)
    assert found == []


def test_every_exception_is_needed() -> None:
    said: dict[str, set[str]] = {
        page: set(spelled_options((REPOSITORY / page).read_text(encoding="utf-8"))) for page in PAGES
    }
    in_code = {one for path in python_files(*PACKAGES) for text in strings_of(path) for one in spelled_options(text)}

    assert [(page, option) for page, option in OWNERS if option not in said[page]] == []
    assert {*OTHERS_OPTIONS} - in_code - {one for options in said.values() for one in options} == set()
    assert [place for place in COMMAND_OF if not (REPOSITORY / place).exists()] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("rollouts submit --data-path x.jsonl --watch", ""),
        ("rollouts submit --embedded", "--embedded"),
        ("rollouts resum RUN", "resum"),
        ("rollouts pool freeze VM", "freeze"),
        ("rollouts status ONE TWO", "TWO"),
        ("rollouts watch --output-dir", "requires an argument"),
        ("pool.py release VM", "scripts/pool.py"),
        ("python scripts/submit.py --cancel RUN", ""),
        ("python scripts/submit.py --forget RUN", "--forget"),
        ("python scripts/sumbit.py", "there is no"),
        ("celery -A rollout_tasks worker --num-vms 3 --provider local --hostname NAME@%h", ""),
        ("celery -A rollout_tasks worker --vms 3", "--vms"),
        ("celery -A rollout_tasks flower --read_only --port=5555", ""),
        ("celery -A rollout_tasks flower --login=me", "login"),
        ("celery -A rollout_tasks inspekt ping", "inspekt"),
        ("python -m tests.faults --list", ""),
        ("python -m tests.faults --everything", "--everything"),
        ("docker compose run --rm cli show RUN", "'show'"),
        ("docker compose run --rm cli scripts/submit.py --watch", ""),
        ("sudo rollouts image build --prof core", "--prof"),
    ],
)
def test_a_wrong_line_is_noticed(line: str, wrong: str) -> None:
    found = [problem(words) for words in commands_of(line)]

    assert len(found) == 1
    assert wrong in (found[0] or "") if wrong else found == [None]
