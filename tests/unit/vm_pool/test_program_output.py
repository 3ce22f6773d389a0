"""The last lines of what a program wrote, however much that was."""

from __future__ import annotations

from pathlib import Path

from vm_pool.providers.program_output import ending, in_one_line, last_lines


def test_colours_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"first\n\x1b[31msecond\x1b[0m\n\n  third \xff\n\n")

    assert last_lines(file, 2) == "second | third \ufffd"
    assert last_lines(file, 9) == "first | second | third \ufffd"
    assert in_one_line("a\n\x1b[1mb\x1b[0m  c") == "a b c"


def test_a_file_that_is_missing_or_empty_has_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert last_lines(tmp_path / "gone", 2) == last_lines(tmp_path / "empty", 2) == ""


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "console"
    with file.open("wb") as opened:
        opened.truncate(1 << 36)
        opened.seek(0, 2)
        opened.write(b"\nthe end\n")

    assert last_lines(file, 1) == "the end"


def test_of_what_a_guest_wrote_the_end_is_shown() -> None:
    assert (
        ending(b"x\n" * 100_000 + b"\x1b[31mthe last but one\x1b[0m\r\nthe end\r\n", 2) == "the last but one | the end"
    )
