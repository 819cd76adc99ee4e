"""The comparison of two commits' speed: who comes first, what the verdict is, that both command lines are driven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

import bench_pair as script  # noqa: E402

from translate.decoding.stream import MOST_LINES  # noqa: E402

OLD, NEW = Path("old"), Path("new")


def row_of(name: str, *ratios: float) -> script.Row:
    return script.Row(name, "lines/s", [50.0] * len(ratios), [50.0 * ratio for ratio in ratios])


def test_every_other_pair_begins_with_the_new_commit() -> None:
    taken: list[tuple[str, str]] = []

    def measure(name: str, speeds: dict[Path, float]) -> script.Measure:
        def take(checkout: Path) -> float:
            taken.append((name, checkout.name))
            return speeds[checkout] + len(taken)

        return script.Measure(name, "tokens/s", take)

    measures = [measure("a", {OLD: 100, NEW: 200}), measure("b", {OLD: 300, NEW: 400})]
    told: list[str] = []
    rows = script.measure_pairs({"old": OLD, "new": NEW}, measures, 3, told.append)
    there, back = ["old", "new"], ["new", "old"]
    assert [side for _, side in taken] == [*there, *there, *back, *back, *there, *there]
    assert [name for name, _ in taken] == ["a", "a", "b", "b"] * 3
    assert [(row.old, row.new) for row in rows] == [
        ([101, 106, 109], [202, 205, 210]),
        ([303, 308, 311], [404, 407, 412]),
    ]
    assert len(told) == 6
    assert "pair 3 of 3: b: 311.0 and 412.0 tokens/s, ratio 1.325" in told[-1]


def test_the_numbers_of_the_table() -> None:
    found = script.summary([row_of("a", 1.2, 0.9, 1.0), row_of("b", 1.0, 1.0, 1.08)])
    first = found["rows"][0]
    assert (first["name"], first["unit"], first["old"]) == ("a", "lines/s", [50, 50, 50])
    assert (first["median_old"], first["median_new"], first["median_ratio"]) == (50, 50, 1)
    assert (first["lowest_ratio"], first["highest_ratio"]) == (0.9, 1.2)
    assert found["geometric_mean"] == pytest.approx((1.2 * 0.9 * 1.08) ** (1 / 6))
    assert found["lowest_median"] == 1.0


@pytest.mark.parametrize(
    ("rows", "fast_enough"),
    [
        ([row_of("a", 1.0)], True),
        ([row_of("a", 0.979)], False),
        ([row_of("a", 0.981)], True),
        ([row_of("a", 0.949), row_of("b", 1.2)], False),  # a mean of 1.07 does not make up for a row
        ([row_of("a", 0.951), row_of("b", 1.2)], True),
        ([row_of("a", 1.0, 1.0, 0.8)], False),  # nor a median of 1 for the mean, which is 0.93
        ([row_of("a", 1.0, 1.0, 0.95)], True),
    ],
)
def test_the_verdict(rows: list[script.Row], fast_enough: bool) -> None:
    assert script.summary(rows)["fast_enough"] is fast_enough


@pytest.mark.parametrize(("ratio", "code", "word"), [(1.0, 0, "fast enough"), (0.9, 1, "slower")])
def test_the_exit_code(
    ratio: float, code: int, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "compare", lambda *arguments: script.summary([row_of("train luong", ratio)]))
    arguments = [str(ROOT), str(ROOT), "--data", "-"]
    assert script.main(arguments) == code
    head, _, row, last = capsys.readouterr().out.splitlines()
    assert head.endswith(f"8 pairs of {ROOT} and {ROOT}")
    assert row.split() == [
        "train",
        "luong",
        "50.0",
        f"{50 * ratio}",
        "lines/s",
        *[f"{ratio:.3f}"] * 2,
        "-",
        f"{ratio:.3f}",
    ]
    assert last.endswith(f": {word}")
    assert script.main([*arguments, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["fast_enough"] == (code == 0)


def test_the_speed_is_that_of_the_last_windows(tmp_path: Path) -> None:
    speeds = [1.0, 7.0, *[100.0, 300.0] * (script.NUM_WINDOWS // 2)]
    records: list[dict[str, Any]] = [{"kind": "train", "tokens_per_second": speed} for speed in speeds]
    records.insert(1, {"kind": "valid", "loss": 3.0})
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert script.read_speed(path) == pytest.approx(150.0)  # as many tokens in each: 2 / (1/100 + 1/300)


def test_the_clock_starts_between_two_chunks_of_lines(tmp_path: Path) -> None:
    """The command answers a chunk at once, so that a longer one would be over when its first answers arrive."""
    for ending in ("en", "fr"):
        (tmp_path / f"train.{ending}").write_text("one line\nanother\n")
    (tmp_path / "project").mkdir()
    script.write_project(tmp_path, 300, tmp_path / "project")
    lines = (tmp_path / "project" / "lines.txt").read_text().splitlines()
    assert (lines[MOST_LINES - 1 :], set(lines[:MOST_LINES])) == (["a", "one line", "another"], {"a"})


def test_runs_are_made_of_the_models_that_are_asked_for(tmp_path: Path) -> None:
    measures = {measure.name: measure for measure in script.all_measures(tmp_path)}
    assert script.models_of([measures["train luong"]]) == ["luong"]
    assert script.models_of([measures["train heads"], measures["search beam 5"]]) == ["bahdanau", "heads"]
    assert script.models_of(list(measures.values())) == list(script.MODELS)


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(ROOT), str(ROOT), "--data", str(tmp_path)]
    assert script.main(arguments) == 2
    assert "must hold train.L1 and train.L2" in capsys.readouterr().err
    assert script.main([*arguments, "--only", "trian"]) == 2
    assert "They are train bahdanau, " in capsys.readouterr().err
    assert script.main(["no-such-revision", *arguments[1:]]) == 2
    assert "no-such-revision: neither a folder" in capsys.readouterr().err


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a comparison that takes seconds."""
    for ending in ("en", "fr"):
        lines = (ROOT / "data" / "demo" / f"train.{ending}").read_text().split("\n")[:200]
        (tmp_path / f"train.{ending}").write_text("".join(line + "\n" for line in lines))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(script, "WIDTHS", {"embedding": 12, "encoder": 8, "attention": 12, "decoder": 16})
    monkeypatch.setattr(script, "MODELS", {name: script.MODELS[name] for name in ("bahdanau",)})
    monkeypatch.setattr(script, "NUM_WINDOWS", 1)
    monkeypatch.setattr(script, "NUM_LINES", 20)
    return [str(ROOT), str(ROOT), "--data", str(tmp_path), "--pairs", "1"]


@pytest.mark.slow
def test_both_command_lines_are_driven(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "BEAMS", {"beam 2": 2})
    code = script.main([*tiny, "--vocabulary", "300", "--json"])
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert [row["name"] for row in found["rows"]] == ["train bahdanau", "search beam 2"]
    assert all(speed > 0 for row in found["rows"] for side in ("old", "new") for speed in row[side])
    assert code == int(not found["fast_enough"])
    assert "pair 1 of 1: search beam 2: " in told.err


@pytest.mark.slow
def test_a_text_of_too_few_pieces_is_refused(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([*tiny, "--only", "train"]) == 2
    assert "pieces, not 8000" in capsys.readouterr().err
