"""Verdicts that were paid for: kept line by line, shared by processes, and never a reason to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.judge import judge_messages
from benchmark.judged_answers import JudgedAnswers, Judgement

ASKED = judge_messages("Capital of France?", "Paris", "It is Paris")
CORRECT = Judgement("Correct", 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "judged.jsonl"


def test_what_is_kept_is_found_by_whoever_opens_the_file_next(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with JudgedAnswers(path) as answers:
        assert answers.find("grader", ASKED) is None
        answers.keep("grader", ASKED, CORRECT)
        assert answers.find("grader", ASKED) == CORRECT
    assert caplog.messages == []

    assert JudgedAnswers(path).find("grader", ASKED) == CORRECT
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert (record["judge"], record["verdict"], record["tries"]) == ("grader", "Correct", 2)


@pytest.mark.parametrize(
    ("model", "question", "answer", "prediction"),
    [
        ("another grader", "Capital of France?", "Paris", "It is Paris"),
        ("grader", "Capital of Spain?", "Paris", "It is Paris"),
        ("grader", "Capital of France?", "Lyon", "It is Paris"),
        ("grader", "Capital of France?", "Paris", "It is not Paris"),
    ],
)
def test_another_question_is_another_answer(
    path: Path, model: str, question: str, answer: str, prediction: str
) -> None:
    answers = JudgedAnswers(path)
    answers.keep("grader", ASKED, CORRECT)

    assert answers.find(model, judge_messages(question, answer, prediction)) is None


def test_what_is_kept_is_on_disk_and_was_kept_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _descriptor: synced.append(path.read_text()))
    one, two = JudgedAnswers(path), JudgedAnswers(path)
    one.keep("grader", ASKED, CORRECT)
    two.keep("grader", ASKED, Judgement("Incorrect", 1))

    assert synced == [path.read_text()]
    assert two.find("grader", ASKED) == CORRECT


def test_a_line_that_finds_no_room_is_told_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:-1]))
    with JudgedAnswers(path) as answers:
        answers.keep("grader", ASKED, CORRECT)
        answers.keep("another", ASKED, CORRECT)
        assert answers.find("grader", ASKED) == answers.find("another", ASKED) == CORRECT

    assert caplog.messages == [
        f"{path} cannot be written: no room for the whole line; scoring this run again may ask the judge again"
    ]


def test_two_that_are_at_work_find_each_others_verdicts(path: Path) -> None:
    one, two = JudgedAnswers(path), JudgedAnswers(path)
    assert two.find("grader", ASKED) is None

    one.keep("grader", ASKED, CORRECT)

    assert two.find("grader", ASKED) == CORRECT


def test_a_line_cut_short_is_ignored_and_spoils_no_other(path: Path) -> None:
    JudgedAnswers(path).keep("grader", ASKED, CORRECT)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    answers = JudgedAnswers(path)
    assert answers.find("grader", ASKED) is None

    answers.keep("grader", ASKED, CORRECT)

    assert JudgedAnswers(path).find("grader", ASKED) == CORRECT
    assert answers.find("grader", ASKED) == CORRECT


@pytest.mark.parametrize(
    "line", [b"[]", b"null", b"\xff\xfe", b'{"key": "xyz"}', b'{"key": 1, "verdict": 2, "tries": 3}']
)
def test_a_line_that_says_nothing_is_ignored(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n")
    answers = JudgedAnswers(path)

    answers.keep("grader", ASKED, CORRECT)

    assert JudgedAnswers(path).find("grader", ASKED) == CORRECT


def test_several_processes_append_at_once(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from benchmark.judge import judge_messages\n"
        "from benchmark.judged_answers import JudgedAnswers, Judgement\n"
        "answers = JudgedAnswers(Path(sys.argv[1]))\n"
        "for number in range(100):\n"
        "    answers.keep('grader', judge_messages(sys.argv[2], 'a', str(number)), Judgement('Correct', number))\n"
    )
    names = ["one", "two", "three"]
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in names]
    assert [process.wait(60) for process in processes] == [0, 0, 0]

    answers = JudgedAnswers(path)
    for name in names:
        for number in range(100):
            assert answers.find("grader", judge_messages(name, "a", str(number))) == Judgement("Correct", number)


def test_a_full_disk_is_said_once_and_stops_nothing(path: Path) -> None:
    """The file may not grow past 200 bytes, in the middle of the second line."""
    program = (
        "import logging, resource, signal, sys; from pathlib import Path\n"
        "from benchmark.judge import judge_messages\n"
        "from benchmark.judged_answers import JudgedAnswers, Judgement\n"
        "logging.basicConfig(stream=sys.stdout)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "answers = JudgedAnswers(Path(sys.argv[1]))\n"
        "for number in range(5):\n"
        "    answers.keep('grader', judge_messages('q', 'a', str(number)), Judgement('Correct', 1))\n"
        "print([answers.find('grader', judge_messages('q', 'a', str(number))) is not None for number in range(5)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.count("judged.jsonl cannot be written") == 1
    assert "[True, True, True, True, True]" in done.stdout
    kept = [JudgedAnswers(path).find("grader", judge_messages("q", "a", str(number))) for number in range(5)]
    assert [judgement is not None for judgement in kept] == [True, False, False, False, False]


def test_a_file_that_cannot_be_read_is_said(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    answers = JudgedAnswers(path)

    assert answers.find("grader", ASKED) is None
    answers.keep("grader", ASKED, CORRECT)

    assert answers.find("grader", ASKED) == CORRECT
    assert caplog.text.count("judged.jsonl cannot be") == 1


def test_the_umask_says_whether_a_group_may_add_to_it(path: Path) -> None:
    before = os.umask(0o002)
    try:
        JudgedAnswers(path).keep("grader", ASKED, CORRECT)
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o664
