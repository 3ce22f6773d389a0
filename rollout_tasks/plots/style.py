"""How all plots look, and how they are written: PNG and SVG on a white background, so that they read alike in light and dark."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.whole_file import write_whole
from rollout_tasks.errors import UserError
from rollout_tasks.unicode_text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D4037", "#616161")
"""Okabe and Ito's, which people with any colour vision tell apart, and two darker ones; one for each run, then from the start."""
INK, FAINT = "#24292f", "#d0d7de"
LONGEST_LABEL = 32
_WIDTH, _DPI = 7.2, 160
"""Inches, and pixels in each."""
_STYLE: Any = {
    "text.parse_math": False,  # names may have dollar signs
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
    "svg.hashsalt": "rollouts",  # the same plot is the same file
}
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Source Han Sans SC")
"""Those of these that the machine has are taken, so that names in other scripts are shown where they can be."""


def require_matplotlib() -> None:
    """Checks that plots can be drawn.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401 (here, because it is optional)
    except ImportError as error:
        raise UserError("--plots needs the package matplotlib: uv pip install matplotlib") from error


def whole_numbers(axis: Axis) -> None:
    """Puts ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator  # here, because it is optional

    axis.set_major_locator(MaxNLocator(integer=True))


@contextmanager
def drawing(title: str, height: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """Yields a figure and its axes, to be drawn on while the style holds.

    Args:
        title: What the plot shows.
        height: In inches.
    """
    import matplotlib as mpl  # here, because it is optional, and takes a second
    from matplotlib.figure import Figure
    from matplotlib.font_manager import get_font_names

    known = set(get_font_names())
    style: Any = {**_STYLE, "font.family": [name for name in _FONTS if name in known] or ["sans-serif"]}
    with mpl.rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        yield figure, axes


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Returns a name as a plot has room for it.

    Args:
        text: The name, which may come from elsewhere.
        longest: Its characters, at most.
    """
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def write(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Writes figures as ``NAME.png`` and ``NAME.svg``, each whole or not at all, and returns the files.

    Args:
        figures: By name.
        folder: Made if there is none.

    Raises:
        OSError: It cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            write_whole(path, _drawn(figure, kind))
            written.append(path)
    return written


def _drawn(figure: Figure, kind: str) -> bytes:
    import matplotlib as mpl  # here, because it is optional

    data = io.BytesIO()
    with warnings.catch_warnings(), mpl.rc_context(_STYLE):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(data, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
    return data.getvalue()
