"""Several corpora with weights, the other direction, and other spellings each epoch; resuming stays exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from translate.config import load_config, reverse_config
from translate.data.batches import BatchOrder
from translate.errors import ConfigError, RunError
from translate.run.directory import Run
from translate.training.prepare import TrainingInputs, open_inputs

CommandLine = Callable[..., Any]
TWO = 'data.train=["train","back"]'


@pytest.fixture
def two(project: Path) -> Path:
    """The tiny corpus and 30 pairs of another one, in another format."""
    data = project.parent / "data"
    pairs = [line.split("\n")[100:130] for line in ((data / f"train.{end}").read_text() for end in ("en", "fr"))]
    rows = ("\t".join(pair) + "\n" for pair in zip(*pairs, strict=True))
    (data / "back.tsv").write_text("\n" + "".join(rows))  # a row that is left out, so that rows and lines differ
    return project


def opened(project: Path, run: Path, *overrides: str, reverse: bool = False) -> TrainingInputs:
    config = load_config(project, overrides)
    return open_inputs(reverse_config(config) if reverse else config, Run(run), False, test=False, say=lambda _: None)


def test_a_list_trains_on_all_and_weights_say_how_often(two: Path, tmp_path: Path) -> None:
    inputs = opened(two, tmp_path / "run", TWO, "data.weights=[0.5,3]")
    assert len(inputs.train) == 230
    assert inputs.weights is not None
    assert [(inputs.weights == weight).sum() for weight in (0.5, 3.0)] == [200, 30]
    assert inputs.weights[199] == 0.5
    assert inputs.weights[200] == 3.0
    assert json.loads((tmp_path / "run" / "data" / "sources.json").read_text())["train"]["pairs"] == [200, 31]
    once = opened(two, tmp_path / "once", TWO)
    assert once.weights is None
    assert len(once.train) == 230


def test_an_epoch_sees_pairs_by_their_weights() -> None:
    lengths = np.full(1000, 7, np.int32)
    weights = np.repeat([0.5, 1.0, 2.25], [600, 300, 100])
    order = BatchOrder(lengths, lengths, 70, 1, weights)
    epochs = [np.concatenate(order.epoch(number)) for number in range(40)]
    counts = np.array([np.bincount(rows, minlength=1000) for rows in epochs])
    assert set(counts[:, :600].ravel()) == {0, 1}
    assert set(counts[:, 600:900].ravel()) == {1}
    assert set(counts[:, 900:].ravel()) == {2, 3}
    assert counts.mean(axis=0)[:600].mean() == pytest.approx(0.5, abs=0.02)
    assert counts.mean(axis=0)[900:].mean() == pytest.approx(2.25, abs=0.03)
    assert (counts[0] != counts[1]).any()
    assert all((a == b).all() for a, b in zip(order.epoch(3), order.epoch(3), strict=True))
    plain = BatchOrder(lengths, lengths, 70, 1)
    ones = BatchOrder(lengths, lengths, 70, 1, np.ones(1000))
    assert sorted(np.concatenate(plain.epoch(0)).tolist()) == sorted(np.concatenate(ones.epoch(0)).tolist())


def test_other_weights_make_another_run(two: Path, tmp_path: Path) -> None:
    opened(two, tmp_path / "run", TWO, "data.weights=[1,2]")
    with pytest.raises(RunError, match=r"data\.weights: \[1\.0, 2\.0\] in the run, \[1\.0, 3\.0\] now"):
        open_inputs(load_config(two, [TWO, "data.weights=[1,3]"]), Run(tmp_path / "run"), True, False, lambda _: None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.weights=[1,2]",), "2 weights for 1 corpora"),
        ((TWO, "data.weights=[1]"), "1 weights for 2 corpora"),
        (('data.train=["train","train"]',), "each only once"),
        (("data.train=[]",), "at least one corpus"),
        ((TWO, "data.weights=[1,0]"), "greater than 0"),
        (("data.columns=[2,2]",), "two different numbers"),
        (("tokenizer.kind=bpe", "tokenizer.nbest=8"), "nbest > 1 needs kind = 'unigram'"),
    ],
)
def test_what_has_no_meaning(two: Path, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(two, overrides)


@pytest.mark.parametrize("stem", ["train", "back"])
def test_reverse_swaps_the_sides_of_every_format(two: Path, tmp_path: Path, stem: str) -> None:
    there = opened(two, tmp_path / "there", f"data.train={stem}")
    back = opened(two, tmp_path / "back", f"data.train={stem}", reverse=True)
    assert (back.config.data.source_lang, back.config.data.target_lang) == ("fr", "en")
    assert back.valid_sources == there.valid_references
    texts = [
        (inputs.source.decode(inputs.train[5][0]), inputs.target.decode(inputs.train[5][1])) for inputs in (there, back)
    ]
    assert texts[0] == tuple(reversed(texts[1]))
    assert texts[0][0] != texts[0][1]


@pytest.mark.slow
def test_reverse_as_a_command(two: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two.parent)
    words = ("train", two, "train.steps=2", "train.valid_every=1", "--reverse", "--no-test")
    done = command_line(*words)
    assert done.code == 0, done.err
    assert Run.open(Path("runs/tiny-reverse")).config().data.source_lang == "fr"
    assert "is finished" in command_line(*words, "--resume").err
    refused = command_line(*(word for word in words if word != "--reverse"), "--run", "runs/tiny-reverse", "--resume")
    assert refused.code == 2
    assert "data.source_lang: fr in the run, en now" in refused.err


@pytest.mark.slow
def test_stop_and_resume_is_bit_equal(two: Path, tmp_path: Path, command_line: CommandLine) -> None:
    """Other spellings in each epoch, two corpora by weight, and a stop in the middle of the third epoch."""
    fixed = (TWO, "data.weights=[0.5,2]", "tokenizer.nbest=8", "train.batch_tokens=500", "train.valid_every=100")
    fixed = (*fixed, "train.schedule=constant", "--no-test", "--resume")
    for run, stops in (("straight", (30,)), ("cut", (13, 30))):
        for steps in stops:
            done = command_line("train", two, f"train.steps={steps}", *fixed, "--run", tmp_path / run)
            assert done.code == 0, done.err
    newest = [max((tmp_path / run / "checkpoints").glob("step-*")) for run in ("straight", "cut")]
    assert json.loads((newest[0] / "state.json").read_text())["epoch"] >= 2
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (newest[0] / file).read_bytes() == (newest[1] / file).read_bytes()
    plain = command_line("train", two, "train.steps=30", *fixed, "tokenizer.nbest=1", "--run", tmp_path / "plain")
    assert plain.code == 0, plain.err
    other = max((tmp_path / "plain" / "checkpoints").glob("step-*")) / "model.safetensors"
    assert other.read_bytes() != (newest[0] / "model.safetensors").read_bytes()
