"""The terminal's heat map can be read without colour, fits its width, and shows tokens as text."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from translate.alignment.formats import FloatArray
from translate.figures.terminal import MIN_WIDTH, terminal_heatmap


def drawn(weights: FloatArray, source: list[str], target: list[str], width: int = 80, **console: object) -> str:
    """Print a heat map as a console of that width shows it."""
    file = io.StringIO()
    printer = Console(file=file, width=max(width, MIN_WIDTH), legacy_windows=False, **console)  # type: ignore[arg-type]
    printer.print(terminal_heatmap(weights, source, target, width))
    return file.getvalue()


def test_the_shade_is_in_the_characters() -> None:
    weights = np.array([[0.0, 0.049, 0.05, 0.25], [0.5, 0.75, 1.0, np.nan]])
    lines = drawn(weights, ["the", "a", "house", "</s>"], ["日本", "x"]).split("\n")
    assert lines[0].rstrip() == "     the a  house </s>"
    assert lines[1].rstrip() == "日本 ··  ·· ░░    ▒▒"
    assert lines[2].rstrip() == "x    ▓▓  ██ ██    ??"
    assert lines[4] == "· ≥0%   ░ ≥5%   ▒ ≥25%  ▓ ≥50%  █ ≥75%"


def test_columns_that_do_not_fit_are_numbered_and_broken() -> None:
    weights = np.zeros((1, 12))
    weights[0, 9] = 1.0
    text = drawn(weights, [f"token{number}" for number in range(1, 13)], ["x"], width=30)
    assert "10 token10" in text
    lines = [line.rstrip() for line in text.split("\n")]
    first = lines.index("  1  2  3  4  5  6  7  8  9")
    assert lines[first + 1] == "x" + " ··" * 9
    assert lines[first + 3 : first + 5] == ["  10 11 12", "x ██ ·· ··"]


tokens = st.lists(st.text(st.characters(codec=None), max_size=12), max_size=30)


@settings(max_examples=50)
@given(tokens, tokens, st.integers(0, 100), st.integers(0, 99))
def test_any_tokens_fit_and_every_weight_is_drawn(source: list[str], target: list[str], width: int, seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0.75, 1.0, size=(len(target), len(source)))
    text = terminal_heatmap(weights, source, target, width).plain
    assert all(cell_len(line) <= max(width, MIN_WIDTH) for line in text.split("\n"))
    assert all(char.isprintable() or char in "\n\u200c\u200d" for char in text)
    written = sum(token.count("█") for token in source + target)
    if not written:
        assert text.count("█") == 2 * weights.size + 1  # and one in the key


def test_tokens_are_no_markup_and_no_escapes() -> None:
    hostile = ["[red]a[/red]", "[/red]", "\x1b[31m", "<script>", ":smile:", "[link=x]"]
    text = drawn(np.full((6, 6), 0.1), hostile, hostile, width=120)
    for shown in ("[red]a[/red] ", " [/red] ", "<U+001B>[31m ", "<script> ", ":smile: ", "[link=x]"):
        assert shown in text.split("\n")[0]
        assert text.count(f"\n{shown.lstrip()}") == 1
    assert "\x1b" not in text


def test_colour_adds_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    weights, source, target = np.array([[0.9, 0.1]]), ["a", "b"], ["x"]
    coloured = drawn(weights, source, target, force_terminal=True, color_system="truecolor")
    plain = drawn(weights, source, target, force_terminal=True, color_system=None)
    assert "\x1b[38;2;" in coloured
    assert "\x1b" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38;2;" not in drawn(weights, source, target, force_terminal=True, color_system="truecolor")


def test_drawing_in_the_terminal_needs_no_matplotlib() -> None:
    code = "import sys, translate.figures.terminal; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
