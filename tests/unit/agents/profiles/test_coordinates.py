"""From places in what the model saw to pixels of the screen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.agents.profiles.coordinates import (
    QWEN_3,
    QWEN_25,
    UI_TARS,
    Coordinates,
    Resizing,
    Rounding,
    middle,
    numbers,
)
from rollout_tasks.agents.profiles.reply import UnusableReplyError

SCREEN = (1920, 1080)
GRID = Coordinates(SCREEN, (999, 999))
SHARES = Coordinates(SCREEN, (1, 1), Rounding.NEAREST)
RESIZED = Coordinates(SCREEN, (1932, 1092), Rounding.THOUSANDTHS_DOWN)
SCALED = Coordinates(SCREEN, (1280, 720))


@pytest.mark.parametrize(
    ("coordinates", "place", "pixel"),
    [
        (GRID, (0, 0), (0, 0)),
        (GRID, (500, 500), (960, 540)),
        (GRID, (999, 999), (1919, 1079)),
        (GRID, (1000, 1000), (1919, 1079)),
        (GRID, (1, 1), (1, 1)),
        (GRID, (-1, 3.5), (0, 3)),
        (SHARES, (0.5, 0.25), (960, 270)),
        (SHARES, (0.99999, 1.0), (1919, 1079)),
        (SHARES, (1, 0), (1919, 0)),
        (SHARES, (0.0003, 0.0005), (1, 1)),
        (RESIZED, (966, 546), (960, 540)),
        (RESIZED, (1932, 1092), (1919, 1079)),
        (RESIZED, (1, 1), (0, 0)),
        (SCALED, (639, 359), (958, 538)),
        (SCALED, (1279.9, 0.9), (1919, 1)),
        (SCALED, (82, 26), (123, 39)),
        (Coordinates(SCREEN, (1280, 720), Rounding.SHARE_DOWN), (82, 26), (122, 38)),
        (Coordinates((1280, 720), (1000, 1000), Rounding.THOUSANDTHS_DOWN), (0, 175), (0, 126)),
        (Coordinates((1280, 720), (1000, 1000), Rounding.SHARE_DOWN), (0, 175), (0, 125)),
        (Coordinates(SCREEN, SCREEN), (1919, 1079), (1919, 1079)),
        (Coordinates(SCREEN, SCREEN), (-0.0, 1e-300), (0, 0)),
    ],
)
def test_a_place_becomes_a_pixel(coordinates: Coordinates, place: tuple[float, float], pixel: tuple[int, int]) -> None:
    assert coordinates.place(*place) == pixel


@pytest.mark.parametrize(
    "x",
    [math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, -(10**400), 1002, -3, True, None, "5", [5], b"5", 5j],
)
def test_what_is_no_place_in_the_picture_is_refused(x: object) -> None:
    for place in ((x, 5), (5, x)):
        with pytest.raises(UnusableReplyError, match="outside the picture of 999x999") as caught:
            GRID.place(*place)
        assert len(str(caught.value)) < 100


@given(
    st.one_of(st.integers(), st.floats()),
    st.one_of(st.integers(-5, 2000), st.floats(-0.1, 1.1), st.floats(allow_nan=True)),
    st.tuples(st.integers(1, 9000), st.integers(1, 9000)),
    st.tuples(st.floats(1, 9000), st.floats(1, 9000)),
    st.sampled_from(Rounding),
)
def test_a_pixel_is_on_the_screen(
    x: float, y: float, screen: tuple[int, int], picture: tuple[float, float], rounding: Rounding
) -> None:
    try:
        left, top = Coordinates(screen, picture, rounding).place(x, y)
    except UnusableReplyError:
        return
    assert type(left) is int
    assert type(top) is int
    assert 0 <= left < screen[0]
    assert 0 <= top < screen[1]


@pytest.mark.parametrize(
    ("resizing", "picture", "size"),
    [
        (UI_TARS, (1920, 1080), (1932, 1092)),
        (UI_TARS, (1280, 720), (1288, 728)),
        (UI_TARS, (100, 100), (280, 280)),
        (UI_TARS, (7680, 4320), (4760, 2688)),
        (QWEN_25, (1920, 1080), (1932, 1092)),
        (QWEN_25, (10, 20), (56, 84)),
        (QWEN_3, (1920, 1080), (1920, 1088)),
        (QWEN_3, (1366, 768), (1376, 768)),
        (QWEN_3, (1, 1), (64, 64)),
    ],
)
def test_a_picture_is_resized_as_the_model_does(
    resizing: Resizing, picture: tuple[int, int], size: tuple[int, int]
) -> None:
    assert resizing.size(*picture) == size


@pytest.mark.parametrize("picture", [(0, 5), (5, 0), (-1, 5), (201, 1), (1, 201)])
def test_a_picture_that_no_model_takes_is_refused(picture: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be resized"):
        UI_TARS.size(*picture)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("(1,2)", (1, 2)),
        ("( 1 , 2.5 )", (1, 2.5)),
        ("<|box_start|>(10,20)<|box_end|>", (10, 20)),
        ("<point>10 20</point>", (10, 20)),
        ("<bbox>10 20 30 50</bbox>", (20, 35)),
        ("[[1, 2, 3, 4]]", (2, 3)),
        ("(10,20),(30,40)", (20, 30)),
        ("-1 +2", (-1, 2)),
        (".5 0.", (0.5, 0)),
    ],
)
def test_a_place_is_read_in_every_spelling(text: str, place: tuple[float, float]) -> None:
    assert middle(numbers(text)) == place


@pytest.mark.parametrize(
    "text", ["", "()", "1", "1,2,3", "1,2,3,4,5", "nan, 1", "1e5, 2", "a, b", "1" * 10 + ",2", "1," * 200, "0x1 2"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UnusableReplyError, match="place"):
        middle(numbers(text))
