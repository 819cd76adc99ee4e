"""Attention weights in the terminal: characters show the shade, and colour only adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from translate.alignment.formats import FloatArray
from translate.figures.labels import label

# Least weight, character, and a colour that is visible on dark and light backgrounds.
SHADES = (
    (0.75, "█", Style(color="#1f6feb")),
    (0.50, "▓", Style(color="#3c82e6")),
    (0.25, "▒", Style(color="#5c93d6")),
    (0.05, "░", Style(color="#7d9cc0")),
    (0.00, "·", Style(color="#8b949e")),
)
NO_WEIGHT = ("?", Style(color="red"))  # not a number, or below 0
KEY = tuple(f"{char} ≥{least:.0%}" for least, char, _ in reversed(SHADES))
BLOCK = 2  # cells: about a square
GAP = 1
LABEL_CELLS = 16
MIN_WIDTH = 24


def terminal_heatmap(
    weights: FloatArray, source_labels: Sequence[str], target_labels: Sequence[str], width: int
) -> Text:
    """Draw weights (T, S) in `width` terminal cells, at least 24: target tokens are rows, source tokens columns.

    Source tokens head their columns if all fit next to each other; else the columns have numbers, a list explains the
    numbers, and columns that do not fit go into further panels below.
    """
    assert weights.shape == (len(target_labels), len(source_labels)), "weights are (T, S)"
    width = max(width, MIN_WIDTH)
    rows = _aligned(label(text, min(LABEL_CELLS, width // 3)) for text in target_labels)
    room = width - (cell_len(rows[0]) if rows else 0)
    heads = [label(text, LABEL_CELLS) for text in source_labels]
    lines = []
    if sum(map(_column, heads)) > room:
        numbers = [str(number) for number in range(1, len(heads) + 1)]
        lines += [*_flow([f"{number} {head}" for number, head in zip(numbers, heads, strict=True)], width), Text()]
        heads = numbers
    for start, stop in _panels(heads, room):
        lines += [*_panel(weights[:, start:stop], heads[start:stop], rows), Text()]
    return Text("\n", no_wrap=True).join([*lines, *_flow(KEY, width)])


def _panel(weights: FloatArray, heads: Sequence[str], rows: Sequence[str]) -> Iterator[Text]:
    """Draw a group of columns: the heads, then a line for each target token."""
    margin = cell_len(rows[0]) if rows else 0
    yield Text(" " * margin + "".join(" " * GAP + set_cell_size(head, _column(head) - GAP) for head in heads), "bold")
    for row, row_weights in zip(rows, weights, strict=True):
        line = Text(row)
        for head, weight in zip(heads, row_weights, strict=True):
            char, style = _shade(float(weight))
            line.append(" " * GAP)
            line.append(char * BLOCK, style)
            line.append(" " * (_column(head) - GAP - BLOCK))
        yield line


def _shade(weight: float) -> tuple[str, Style]:
    """Choose the character and the colour of a weight."""
    return next(((char, style) for least, char, style in SHADES if weight >= least), NO_WEIGHT)


def _column(head: str) -> int:
    """Give the width of a column in cells, with the gap before it."""
    return GAP + max(BLOCK, cell_len(head))


def _panels(heads: Sequence[str], room: int) -> Iterator[tuple[int, int]]:
    """Break the columns into groups that fit: the first column of each, and the first not in it."""
    start = used = 0
    for stop, head in enumerate(heads):
        if used + _column(head) > room:
            yield start, stop
            start, used = stop, 0
        used += _column(head)
    yield start, len(heads)


def _flow(entries: Sequence[str], width: int) -> Iterator[Text]:
    """Set entries next to each other in columns of equal width, on as many lines as needed."""
    aligned = _aligned(entries)
    per_line = max(1, (width + 2) // (cell_len(aligned[0]) + 2))
    for start in range(0, len(aligned), per_line):
        yield Text("  ".join(aligned[start : start + per_line]).rstrip(), "dim")


def _aligned(texts: Iterable[str]) -> list[str]:
    """Fill texts up with spaces to the width of the widest."""
    listed = list(texts)
    widest = max(map(cell_len, listed), default=0)
    return [set_cell_size(text, widest) for text in listed]
