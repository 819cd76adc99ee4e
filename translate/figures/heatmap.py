"""Attention weights as a picture: source across, target down, darker is more."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import imread
from rich.cells import cell_len

from translate.alignment.formats import FloatArray
from translate.errors import UserError
from translate.figures.fonts import DEFAULT_FAMILY, families_for, warn_missing
from translate.figures.labels import label

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# No dates, so that the same weights give the same file.
METADATA: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

# Text stays text: it can be searched, and in svg the viewer's fonts can draw what ours cannot; pdf embeds fonts.
STYLE: dict[RcKeyType, Any] = {
    "text.parse_math": False,  # a token is text, even `$_$`
    "font.sans-serif": [DEFAULT_FAMILY],
    "svg.fonttype": "none",
    "svg.hashsalt": "translate",
    "pdf.fonttype": 42,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": "#1f2933",
    "text.color": "#1f2933",
    "xtick.labelcolor": "#1f2933",
    "ytick.labelcolor": "#1f2933",
    "xtick.color": "#9aa5b1",
    "ytick.color": "#9aa5b1",
}
COLOURS = LinearSegmentedColormap.from_list(
    "attention", ["#ffffff", "#d5e6f5", "#8fc1e3", "#4292c6", "#14599d", "#08306b"]
).with_extremes(bad="#e0e0e0")
GRID_COLOUR = "#e4e9ee"
ATTENTION, HEAD = "attention weight", "alignment head's probability"  # what a heat map can show

DPI = 200
CELL = 0.34  # inches
MAX_SIDE = 12.0  # inches of cells on a side; the labels add a little
MIN_GRID_CELL = 0.1  # inches; below, grid lines would be most of the picture
BAR_SIDE = 1.6  # inches: least height of the colour bar
MAX_VECTOR_CELLS = 4096  # more are stored as pixels in svg and pdf
LABEL_CELLS = 20
TITLE_CELLS = 80
POINTS = 72  # an inch
SMALL, LARGE = 5.5, 10.0  # points: fonts of the labels


def save_heatmap(
    path: Path,
    weights: FloatArray,
    source_labels: Sequence[str],
    target_labels: Sequence[str],
    title: str | None = None,
    measure: str = ATTENTION,
) -> None:
    """Draw weights (T, S) into a .png, .svg or .pdf file; labels are not interpreted as markup.

    `measure` is the label of the colour bar.
    """
    assert weights.shape == (len(target_labels), len(source_labels)), "weights are (T, S)"
    kind = path.suffix.lower()
    if kind not in METADATA:
        raise UserError(f"{path}: no picture format {kind!r}. Give a name that ends in {', '.join(METADATA)}.")
    columns = [label(text, LABEL_CELLS) for text in source_labels]
    rows = [label(text, LABEL_CELLS) for text in target_labels]
    heading = label(title, TITLE_CELLS) if title else ""
    families, missing = families_for("".join([*columns, *rows, heading]))
    if kind != ".svg":
        warn_missing(missing)
    buffer = io.BytesIO()
    with _style(families):
        figure = _draw(weights, columns, rows, heading, measure)
        figure.savefig(buffer, format=kind[1:], dpi=DPI, bbox_inches="tight", pad_inches=0.12, metadata=METADATA[kind])
    write_picture(path, buffer.getvalue())


@contextmanager
def _style(families: Sequence[str]) -> Iterator[None]:
    """Draw in our style, without the user's matplotlibrc and without a warning for each missing glyph."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update({**STYLE, "font.family": ["sans-serif", *families[1:]]})
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _draw(weights: FloatArray, columns: Sequence[str], rows: Sequence[str], heading: str, measure: str) -> Figure:
    """Lay out the cells in inches; labels and the colour bar enlarge the picture when it is saved."""
    cell_width, cell_height = _cell(len(columns)), _cell(len(rows))
    width, height = cell_width * max(len(columns), 1), cell_height * max(len(rows), 1)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, max(len(columns), 1)), ylim=(max(len(rows), 1), 0))  # the first target token on top
    if weights.size:
        grid = min(cell_width, cell_height) >= MIN_GRID_CELL
        _add_bar(figure, _add_cells(axes, weights, grid), width, height, measure)
    _label_columns(axes, columns, cell_width)
    _label_rows(axes, rows, cell_height)
    axes.tick_params(length=0, pad=5)
    if heading:
        axes.set_title(heading, loc="left", fontsize=LARGE + 1, pad=10)
    return figure


def _cell(count: int) -> float:
    """The side of a cell in inches, such that the picture's side is bounded."""
    return min(CELL, MAX_SIDE / max(count, 1))


def _add_cells(axes: Axes, weights: FloatArray, grid: bool) -> QuadMesh:
    """Draw the weights as coloured cells: white is 0, the darkest colour is 1, grey is not a number."""
    return axes.pcolormesh(
        np.ma.masked_invalid(weights),
        cmap=COLOURS,
        vmin=0.0,
        vmax=1.0,
        edgecolors=GRID_COLOUR if grid else "none",
        linewidth=0.6 if grid else 0.0,
        rasterized=weights.size > MAX_VECTOR_CELLS,
    )


def _add_bar(figure: Figure, cells: QuadMesh, width: float, height: float, measure: str) -> None:
    """Draw the colour bar right of the cells, level with their top, and say what it measures."""
    bar_height = min(max(height, BAR_SIDE), 2 * BAR_SIDE)
    bar = figure.add_axes((1.0 + 0.22 / width, 1.0 - bar_height / height, 0.11 / width, bar_height / height))
    figure.colorbar(cells, cax=bar, ticks=[0.0, 0.25, 0.5, 0.75, 1.0])
    bar.tick_params(length=0, pad=4, labelsize=8)
    bar.set_ylabel(measure, fontsize=8, labelpad=6)


def _label_columns(axes: Axes, labels: Sequence[str], cell: float) -> None:
    """Write the source labels on top: horizontal if they fit, slanted if cells are wide, else vertical."""
    ticks, size = _ticks(len(labels), cell)
    room = cell * POINTS / (0.65 * size)  # in letters
    if all(cell_len(text) <= room for text in labels):
        look: dict[str, Any] = {"ha": "center"}
    elif cell == CELL:
        look = {"ha": "left", "rotation_mode": "anchor", "rotation": 45}
    else:
        look = {"ha": "left", "rotation_mode": "anchor", "rotation": 90, "va": "center"}
    axes.xaxis.tick_top()
    shown = [labels[tick] for tick in ticks]
    axes.set_xticks([tick + 0.5 for tick in ticks], shown, fontsize=size, **look)


def _label_rows(axes: Axes, labels: Sequence[str], cell: float) -> None:
    """Write the target labels on the left."""
    ticks, size = _ticks(len(labels), cell)
    shown = [labels[tick] for tick in ticks]
    axes.set_yticks([tick + 0.5 for tick in ticks], shown, fontsize=size)


def _ticks(count: int, cell: float) -> tuple[range, float]:
    """Choose which tokens get a label, and its size in points, so that labels do not overlap."""
    size = min(max(0.8 * cell * POINTS, SMALL), LARGE)
    return range(0, count, math.ceil(1.2 * size / (cell * POINTS))), size


def pixels(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read a PNG picture (height, width, 3)."""
    return np.rint(np.asarray(imread(path))[:, :, :3] * 255).astype(np.uint8)


def write_picture(path: Path, content: bytes) -> None:
    """Write the finished picture."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path}: cannot write the picture: {error.strerror}.") from error
