"""Runs of earlier code (tests/kept_runs/README.md) load, translate to the same lines, and resume."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import translate

KEPT = Path(__file__).parent / "kept_runs"
RUNS = sorted(path.parent.name for path in KEPT.glob("*/config.toml"))
SETTINGS = {
    name: line.split("|")[2].split()
    for line in (KEPT / "README.md").read_text().splitlines()
    for name in RUNS
    if line.startswith(f"| {name} |")
}
DROPPED = ("embedding", "encoder", "decoder")
every_run = pytest.mark.parametrize("name", RUNS)


def expected(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((KEPT / name / "expected.json").read_text())
    return content


def test_there_are_six_runs_of_moderate_size() -> None:
    assert RUNS == ["bahdanau", "conditional", "dot", "heads", "plain", "tutorial"]
    assert SETTINGS.keys() == set(RUNS)
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) < 3_000_000


@every_run
def test_a_kept_run_translates_to_the_same_lines(name: str) -> None:
    torch.set_num_threads(1)
    translator = translate.load(KEPT / name)
    sources, translations = zip(*expected(name)["translations"], strict=True)
    assert [best[0].text for best in translator.translate(list(sources))] == list(translations)


@pytest.mark.slow
@every_run
def test_a_kept_run_resumes(name: str, tmp_path: Path, command_line: Callable[..., Any]) -> None:
    """Without dropout its losses are those of the old code that resumed it, whatever order random numbers come in."""
    run = tmp_path / "run"
    shutil.copytree(KEPT / name, run)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r"^(\w*dropout) = .*$", r"\1 = 0.0", config, flags=re.MULTILINE))
    losses, valid = resume(run, [*SETTINGS[name], *(f"model.{part}.dropout=0" for part in DROPPED)], command_line)
    wanted = json.loads((KEPT / "resumed.json").read_text())[name]
    assert losses == pytest.approx(wanted["losses"], rel=1e-3)
    assert valid == pytest.approx(wanted["valid_loss"], rel=1e-3)


@pytest.mark.slow
@every_run
def test_a_kept_run_resumes_with_dropout(name: str, tmp_path: Path, command_line: Callable[..., Any]) -> None:
    """Near the losses of the training that was not interrupted: dropout has drawn other numbers since 2026-11-19."""
    run = tmp_path / "run"
    shutil.copytree(KEPT / name, run)
    losses, valid = resume(run, SETTINGS[name], command_line)
    assert losses == pytest.approx(expected(name)["losses"], rel=0.15)
    assert valid == pytest.approx(expected(name)["valid_loss"], rel=0.05)


def resume(run: Path, settings: list[str], command_line: Callable[..., Any]) -> tuple[dict[str, float], float]:
    """The training losses after update 1,000, and the validation loss at the end."""
    done = command_line("train", KEPT / "kept.toml", *settings, "--run", run, "--resume", "--no-test")
    assert done.code in (0, None), done.err
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {str(line["step"]): line["loss"] for line in lines if line["kind"] == "train" and line["step"] > 1000}
    (valid,) = [line["loss"] for line in lines if line["kind"] == "valid" and line["step"] == 1050]
    return losses, valid
