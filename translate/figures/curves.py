"""Pictures of learning curves and of scores by class of sentence."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from translate.errors import DataError
from translate.figures.heatmap import STYLE, write_picture

BLUE, ORANGE = "#1f6feb", "#d9730d"
COLOURS = (BLUE, ORANGE, "#2a8f4f", "#a2459c", "#6b7683", "#b8860b", "#0f8b8d", "#c0392b")
DASHES = ("-", "--", ":", "-.")  # used in turn after all colours
FEWEST_BARS = 4  # a panel has room for at least this many
DPI = 130
NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}  # of the validation scores
# Panels: title, then lines of (kind of record, its value, label, colour).
PANELS: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    ("loss", (("train", "loss", "training", BLUE), ("valid", "loss", "validation", ORANGE))),
    ("validation scores", (("valid", "bleu", "BLEU", BLUE), ("valid", "chrf", "chrF", ORANGE))),
    ("learning rate", (("train", "learning_rate", "", BLUE),)),
    ("gradient norm", (("train", "gradient_norm", "", BLUE),)),
    ("tokens per second", (("train", "tokens_per_second", "", BLUE),)),
)


def save_curves(path: Path, metrics: Path, regularisation: Sequence[str] = ()) -> None:
    """Draw loss, scores, learning rate, gradient norm and speed from a run's metrics.jsonl.

    `regularisation` names what raises the training loss alone, such as dropout: without it a reader would wonder why
    validation has the lower loss.
    """
    records = _read(metrics)
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=(11.0, 6.2), layout="constrained")
        places = figure.subplots(2, 3).ravel()
        for axes, (title, lines) in zip(places, PANELS, strict=False):
            _panel(axes, title, lines, records, regularisation)
        for axes in places[len(PANELS) :]:
            axes.set_visible(False)
        _save(figure, path)


def save_comparison(path: Path, runs: Mapping[str, Path], metric: str, by: str) -> None:
    """Draw one validation score of several runs into one panel, against minutes of training or updates.

    `runs` gives a metrics.jsonl for each label, `by` is "minutes" or "updates".
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=(7.4, 4.6), layout="constrained")
        axes = figure.subplots()
        for i, (label, metrics) in enumerate(runs.items()):
            points = _validations(metrics, metric, by)
            if not points:
                timeless = by == "minutes" and _validations(metrics, metric, "updates")
                advice = "Its records have no times: use --by updates." if timeless else "Let it validate once."
                raise DataError(f"{metrics}: no validation with a {metric}{' and its time' * bool(timeless)}. {advice}")
            places, values = [place for place, _ in points], [value for _, value in points]
            best = min(values) if metric == "loss" else max(values)
            axes.plot(
                places, values, color=COLOURS[i % len(COLOURS)], linestyle=DASHES[i // len(COLOURS) % len(DASHES)],
                label=f"{label}, best {best:.{3 if metric == 'loss' else 1}f}", linewidth=1.6, marker="o",
                markersize=3.5,
            )  # fmt: skip
        axes.set_title(f"{NAMES[metric]} on the validation text", fontsize=10, loc="left")
        axes.set_xlabel("minutes of training" if by == "minutes" else "update", fontsize=8)
        axes.legend(frameon=False, fontsize=8)
        _tidy(axes)
        axes.set_xlim(left=0)
        if metric != "loss":
            axes.set_ylim(bottom=0)
        _save(figure, path)


def _validations(metrics: Path, metric: str, by: str) -> list[tuple[float, float]]:
    """The x and y values of each validation."""
    found = []
    for record in _read(metrics):
        place = record.get("step") if by == "updates" else record.get("seconds")
        if record.get("kind") == "valid" and place is not None and record.get(metric) is not None:
            found.append((place / (1 if by == "updates" else 60), record[metric]))
    return found


def save_breakdown(path: Path, parts: Mapping[str, Sequence[Mapping[str, Any]]], titles: Mapping[str, str]) -> None:
    """Draw BLEU by class as bars, one panel per kind, with the number of sentences under each bar."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=(4.2 * max(len(parts), 1), 3.4), layout="constrained")
        places = figure.subplots(1, max(len(parts), 1), squeeze=False, sharey=True)[0]
        for axes, (kind, classes) in zip(places, parts.items(), strict=True):
            names = [f"{part['name']}\n{part['sentences']}" for part in classes]
            bars = axes.bar(names, [part["bleu"] for part in classes], color=BLUE, width=0.7)
            axes.bar_label(bars, fmt="{:.1f}", fontsize=8, label_type="center", color="white")
            axes.set_title(titles[kind], fontsize=10, loc="left")
            axes.set_ylim(0, 100)
            axes.set_xlim(-0.6, max(len(classes), FEWEST_BARS) - 0.4)  # a bar alone would fill the panel
            axes.set_xlabel("class, sentences below", fontsize=8)
            _tidy(axes)
        places[0].set_ylabel("BLEU", fontsize=9)
        _save(figure, path)


def _read(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics file, without a last line that a killed process left incomplete."""
    records = []
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _panel(
    axes: Axes,
    title: str,
    lines: Sequence[tuple[str, str, str, str]],
    records: Sequence[Mapping[str, Any]],
    regularisation: Sequence[str],
) -> None:
    for kind, name, text, colour in lines:
        points = [
            (record["step"], record[name])
            for record in records
            if record.get("kind") == kind and record.get(name) is not None
        ]
        steps, values = [step for step, _ in points], [value for _, value in points]
        marker = "o" if kind == "valid" or len(points) == 1 else ""
        label = f"{text}, last {values[-1]:.4g}" if text and values else None
        if label and kind == "train" and regularisation:
            label += f"\n(with {' and '.join(regularisation)})"
        axes.plot(steps, values, color=colour, label=label, linewidth=1.6, marker=marker, markersize=3.5)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("update", fontsize=8)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    _tidy(axes)
    axes.set_xlim(left=0)
    axes.margins(x=0.08)
    if title != "loss":
        axes.set_ylim(bottom=0)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e9ee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, length=0)


def _save(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    write_picture(path, buffer.getvalue())
