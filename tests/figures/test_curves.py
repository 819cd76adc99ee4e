"""Learning curves and breakdowns are drawn from whatever is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from translate.config import load_config
from translate.errors import UserError
from translate.figures import curves
from translate.figures.curves import save_breakdown, save_comparison, save_curves
from translate.training.train import only_in_training

TRAIN = {"kind": "train", "loss": 3.0, "gradient_norm": 1.0, "learning_rate": 1e-3, "tokens_per_second": 900.0}
VALID = {"kind": "valid", "loss": 2.5, "bleu": 12.0, "chrf": 30.0}


def drawn(tmp_path: Path, lines: list[str]) -> np.ndarray:
    (tmp_path / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    save_curves(tmp_path / "curves.png", tmp_path / "metrics.jsonl")
    return np.asarray(imread(tmp_path / "curves.png"))


def panels(picture: np.ndarray) -> list[int]:
    """How many blue or orange points each of the six panels has."""
    red, green, blue = (picture[:, :, channel] for channel in range(3))
    coloured = (np.abs(red - blue) > 0.3) & (green < 0.9)
    height, width = coloured.shape
    return [
        int(coloured[height * i // 2 : height * (i + 1) // 2, width * j // 3 : width * (j + 1) // 3].sum())
        for i in (0, 1)
        for j in (0, 1, 2)
    ]


def test_every_curve_is_in_its_panel(tmp_path: Path) -> None:
    steps = range(50, 500, 50)
    lines = [json.dumps({**TRAIN, "step": step, "loss": 300 / step}) for step in steps]
    lines += [json.dumps({**VALID, "step": step, "bleu": step / 10}) for step in (200, 400)]
    counts = panels(drawn(tmp_path, lines))
    assert min(counts[:5]) > 100
    assert counts[5] == 0


def test_the_training_loss_says_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "_save", lambda figure, path: figures.append(figure))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({**row, "step": 1}) + "\n" for row in (TRAIN, VALID)))
    for names in ((), ("dropout",), ("dropout", "label smoothing")):
        save_curves(tmp_path / "curves.png", tmp_path / "metrics.jsonl", names)
    legends = [figure.axes[0].get_legend() for figure in figures]
    assert [[text.get_text() for text in legend.get_texts()] for legend in legends if legend is not None] == [
        [f"training, last 3{names}", "validation, last 2.5"]
        for names in ("", "\n(with dropout)", "\n(with dropout and label smoothing)")
    ]


def test_what_is_in_the_training_loss_alone() -> None:
    demo = Path(__file__).parents[2] / "configs" / "demo.toml"
    without = [f"model.{part}.dropout=0" for part in ("embedding", "encoder", "decoder")]
    assert only_in_training(load_config(demo)) == ["dropout", "label smoothing"]
    assert only_in_training(load_config(demo, without)) == ["label smoothing"]
    assert only_in_training(load_config(demo, [*without, "train.label_smoothing=0"])) == []


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["", "{half a li"],
        [json.dumps({**TRAIN, "step": 1})],
        [json.dumps({**TRAIN, "step": 1, "loss": None, "gradient_norm": None}), json.dumps({**VALID, "step": 1})],
    ],
)
def test_what_is_missing_is_left_out(tmp_path: Path, lines: list[str]) -> None:
    assert drawn(tmp_path, lines).size


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        save_curves(tmp_path / "absent" / "curves.png", tmp_path / "metrics.jsonl")


def test_runs_in_one_picture_lie_where_time_and_score_say(tmp_path: Path) -> None:
    files = {}
    for name, pace in (("fast", 60), ("slow", 240)):
        lines = [json.dumps({**VALID, "step": i, "bleu": 10 * i, "seconds": i * pace}) for i in range(1, 5)]
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text("\n".join([*lines, json.dumps({**TRAIN, "step": 9, "seconds": 9999.0})]))
    widths = {}
    for by in ("minutes", "updates"):
        save_comparison(tmp_path / "both.png", files, "bleu", by)
        picture = np.asarray(imread(tmp_path / "both.png"))
        red, blue = picture[:, :, 0], picture[:, :, 2]
        top = slice(len(picture) // 12, len(picture) * 5 // 6)
        spans = [np.flatnonzero(mask[top].sum(axis=0)) for mask in (blue - red > 0.4, red - blue > 0.4)]
        widths[by] = [np.ptp(span) for span in spans]
    assert widths["minutes"][1] > 2 * widths["minutes"][0]  # after the same time the slow one has come less far
    assert widths["updates"][1] >= widths["updates"][0] * 0.95 or widths["updates"][1] < 20  # one hides the other


@pytest.mark.parametrize(
    ("record", "advice"),
    [({**VALID, "step": 3}, "and its time.*--by updates"), ({**TRAIN, "step": 3, "seconds": 5.0}, "validate once")],
)
def test_a_run_without_validations_or_times_is_told(tmp_path: Path, record: dict[str, object], advice: str) -> None:
    (tmp_path / "old.jsonl").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"no validation with a bleu.*{advice}"):
        save_comparison(tmp_path / "both.png", {"old": tmp_path / "old.jsonl"}, "bleu", "minutes")


def test_bars_are_as_high_as_scores(tmp_path: Path) -> None:
    parts = {"length": [{"name": "0-5", "sentences": 3, "bleu": 80.0}, {"name": "6-10", "sentences": 2, "bleu": 20.0}]}
    save_breakdown(tmp_path / "bars.png", parts, {"length": "by length"})
    picture = np.asarray(imread(tmp_path / "bars.png"))
    blue = picture[:, :, 2] - picture[:, :, 0] > 0.4
    heights = blue.sum(axis=0)
    tall, small = heights.max(), heights[heights > 20].min()
    assert tall / small == pytest.approx(4, rel=0.3)  # the numbers in the bars take some points away
