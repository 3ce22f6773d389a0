"""Plots: real files that people can read in light and dark, whatever the names in a run are."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollout_tasks.cli import latency, stats
from tests.unit.cli.recorded_runs import Took, recorded

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

from rollout_tasks.plots.scores import MOST_ROWS, Mark, score_by_domain, score_within  # noqa: E402 - not before it is there
from rollout_tasks.plots.style import COLOURS, INK, label, write  # noqa: E402
from rollout_tasks.plots.times import turn_latency, vm_waits, vms_in_use  # noqa: E402

ODD = ["$\\frac{", "数学", "a" * 500, "<svg onload=x>", "\x1b[2J", "d & e"]


def check(path: Path) -> None:
    """A picture that has been drawn, on a background of its own."""
    if path.suffix == ".svg":
        root = ElementTree.parse(path).getroot()  # noqa: S314 - of a file that the test made
        assert root.tag.endswith("svg")
        assert "#ffffff" in path.read_text("utf-8")
        return
    with Image.open(path) as picture:
        assert picture.width >= 1000
        opaque = picture.convert("RGBA")
        assert opaque.getextrema()[3] == (255, 255)
        assert opaque.getpixel((0, 0))[:3] == (255, 255, 255)
        assert len(opaque.convert("RGB").getcolors(1 << 24)) > 20


def test_names_from_elsewhere_are_drawn_as_text(tmp_path: Path) -> None:
    figure = score_by_domain([(name, 3, [Mark(0.5, 0.1, 0.9), Mark(None)]) for name in ODD], ["$x^{", "two"])

    written = write({"domains": figure}, tmp_path / "new" / "folder")

    assert [path.name for path in written] == ["domains.png", "domains.svg"]
    for path in written:
        check(path)
    assert sorted(path.name for path in written[0].parent.iterdir()) == ["domains.png", "domains.svg"]


@pytest.mark.slow
def test_the_same_plot_is_the_same_file(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write({"turns": score_within("Score", "turns", {"run": [(3.0, 1.0), (1.0, 0.0)]})}, tmp_path / place)

    for kind in ("png", "svg"):
        assert (tmp_path / f"one/turns.{kind}").read_bytes() == (tmp_path / f"two/turns.{kind}").read_bytes()


def test_a_score_within_a_limit_is_of_all_rollouts() -> None:
    figure = score_within("Score", "turns", {"run": [(4.0, 1.0), (2.0, 0.5), (9.0, 0.0), (2.0, 0.5)]})

    line = figure.axes[0].lines[0]
    assert list(map(float, line.get_xdata())) == [0.0, 2.0, 2.0, 4.0, 9.0]
    assert list(map(float, line.get_ydata())) == [0.0, 0.125, 0.25, 0.5, 0.5]


def test_vms_in_use_are_means_over_short_spans() -> None:
    figure = vms_in_use([0.0, 60.0, 120.0], [2, 1, 0], 2, 0.75)

    means, edges, _ = figure.axes[0].patches[0].get_data()
    assert (len(means), edges[0], edges[-1]) == (120, 0.0, 120.0)
    assert list(means) == pytest.approx([2.0] * 60 + [1.0] * 60)


def test_a_long_list_of_domains_is_cut_but_for_the_last(tmp_path: Path) -> None:
    rows = [(f"domain {number}", 1, [Mark(0.5)]) for number in range(200)]

    labels = [
        text.get_text()
        for text in score_by_domain([*rows, ("overall", 200, [Mark(0.5)])], ["run"]).axes[0].get_yticklabels()
    ]

    assert len(labels) == MOST_ROWS
    assert labels[-1] == "overall (200)"


@pytest.mark.slow
@pytest.mark.parametrize("length", [1.0, 3_600.0, 40_000.0, 10**6])
def test_each_plot_is_drawn_from_little_and_from_much(tmp_path: Path, length: float) -> None:
    many = 1 if length == 1.0 else 500
    figures = {
        "use": vms_in_use([0.0, length], [1, 0], 1, 1.0),
        "waits": vm_waits([(1e9 + n * length / many, 0.1 * n) for n in range(many)]),
        "turns": turn_latency({"model": [[1.0] * many] * many, "environment": [[]] * many}),
    }

    for path in write(figures, tmp_path):
        check(path)


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_and_lines_stand_out_from_the_background() -> None:
    def contrast(colour: str) -> float:
        return 1.05 / (luminance(colour) + 0.05)

    assert contrast(INK) >= 7
    assert all(contrast(colour) >= 2 for colour in COLOURS)
    assert all(contrast(colour) >= 3 for colour in COLOURS[:3])


def test_long_names_are_cut() -> None:
    assert len(label("a" * 100)) == 32
    assert label("a\nb") == "a b"


@pytest.mark.slow
def test_plots_of_a_run_are_linked_from_its_report(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "one", {"a": [1.0], "b": [0.0]}, took=Took(cost=None))
    before = folder.report.read_text("utf-8")
    plots = folder.path / "my plots"

    for _ in range(2):
        for application in (latency.application, stats.application):
            done = CliRunner().invoke(application, [str(folder.path), "--plots", str(plots)])
            assert done.exit_code == 0, done.output

    after = folder.report.read_text("utf-8")
    assert after.startswith(before + "\n## Plots\n")
    names = ["vms-in-use", "vm-waits", "latency-by-turn", "score-by-domain", "score-by-turns", "score-by-cost"]
    assert [line for line in after.splitlines() if line.startswith("![")] == [
        f"![{name.replace('-', ' ')}](my%20plots/{name}.svg)" for name in names
    ]
    assert {path.name for path in plots.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert "tokens" in (plots / "score-by-cost.svg").read_text("utf-8"), "no cost is known"
    for path in plots.iterdir():
        check(path)


@pytest.mark.slow
def test_plots_elsewhere_leave_the_report_as_it_is(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "one", {"a": [1.0]})
    before = folder.report.read_text("utf-8")

    done = CliRunner().invoke(latency.application, [str(folder.path), "--plots", str(tmp_path / "plots")])

    assert done.exit_code == 0, done.output
    assert folder.report.read_text("utf-8") == before
