"""The trainer in one process: accumulation, patience, averages, precision, bad numbers, a start from another run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from translate.checkpoint import Run
from translate.config import Config, check_config
from translate.data.batches import Batch, collate
from translate.errors import NumericalError, RunError, Stopped
from translate.training.job import Job, open_job
from translate.training.logging import Reporter
from translate.training.signals import StopSignals
from translate.training.train import train
from translate.training.trainer import Trainer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Letters and their capitals: small enough for updates of milliseconds."""
    folder = tmp_path_factory.mktemp("letters")
    generator = np.random.default_rng(3)
    for name, count in (("train", 120), ("valid", 12), ("test", 12)):
        lines = [" ".join(generator.choice(list("abcdef"), generator.integers(2, 6))) for _ in range(count)]
        (folder / f"{name}.small").write_text("".join(line + "\n" for line in lines))
        (folder / f"{name}.large").write_text("".join(line.upper() + "\n" for line in lines))
    return folder


def settings(corpus: Path, **over: Any) -> Config:
    tree: dict[str, Any] = {
        "data": {"folder": str(corpus), "source_lang": "small", "target_lang": "large"},
        "tokenizer": {"vocabulary": 48, "byte_fallback": False},
        "model": {
            "embedding": {"width": 6},
            "encoder": {"width": 5},
            "attention": {"width": 7},
            "decoder": {"width": 8},
        },
        "train": {"steps": 6, "threads": 1, "batch_tokens": 60, "valid_every": 2, "warmup": 2},
        "search": {"beam": 2},
        "logging": {"every": 1, "tensorboard": False, "samples": 1},
    }
    for key, value in over.items():
        section, _, name = key.partition("__")
        target = tree[section]
        for part in name.split("__")[:-1]:
            target = target.setdefault(part, {})
        target[name.split("__")[-1]] = value
    return check_config(tree, origin="test")


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1]
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


class Given:
    """A stream of batches chosen by the test."""

    epoch = position = 0

    def __init__(self, job: Job, groups: list[list[int]]) -> None:
        self.batches = iter([collate(job.train, np.array(rows)) for rows in groups])

    def __next__(self) -> Batch:
        return next(self.batches)


def test_accumulating_four_small_batches_is_one_large_batch(tmp_path: Path, corpus: Path) -> None:
    dropped = {f"model__{part}__dropout": 0.0 for part in ("embedding", "encoder", "decoder")}
    results = []
    for name, accumulate, groups in (
        ("one", 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("four", 4, [[0, 1, 2], [3], [4, 5], [6, 7]]),
    ):
        config = settings(corpus, train__accumulate=accumulate, train__clip=0.0, **dropped)
        job = open_job(config, Run(tmp_path / name), resume=False, test=False, say=lambda text: None)
        trainer = Trainer(job, Reporter(), StopSignals())
        trainer._update(Given(job, groups))  # type: ignore[arg-type]
        results.append({name: parameter.grad for name, parameter in trainer.model.named_parameters()})
    for name, gradient in results[0].items():
        torch.testing.assert_close(gradient, results[1][name], rtol=1e-4, atol=1e-7, msg=name)


def test_patience_ends_training(tmp_path: Path, corpus: Path) -> None:
    """With a learning rate of almost nothing no validation improves on the first."""
    config = settings(corpus, train__learning_rate=1e-12, train__patience=2, train__metric="bleu", train__steps=50)
    train(config, Run(tmp_path / "run"), resume=False, test=False, reporter=Reporter())
    assert [record["step"] for record in records(tmp_path / "run", "valid")] == [2, 4, 6]
    assert (tmp_path / "run" / "best").read_text() == "step-00000002\n"


def test_a_plateau_lowers_the_learning_rate(tmp_path: Path, corpus: Path) -> None:
    config = settings(
        corpus,
        train__learning_rate=1e-12,
        train__schedule="plateau",
        train__plateau_patience=1,
        train__plateau_factor=0.1,
        train__warmup=0,
        train__metric="bleu",
        train__steps=8,
    )
    train(config, Run(tmp_path / "run"), resume=False, test=False, reporter=Reporter())
    rates = [record["learning_rate"] for record in records(tmp_path / "run", "train")]
    # The first validation cannot be worse than none; each later one is no better and costs a factor of ten.
    assert rates == pytest.approx([1e-12] * 4 + [1e-13] * 2 + [1e-14] * 2)


@pytest.mark.parametrize("which", ["last", "best"])
def test_the_average_is_the_mean_of_its_checkpoints(tmp_path: Path, corpus: Path, which: str) -> None:
    config = settings(corpus, train__average=2, train__average_of=which, train__metric="loss", train__keep_last=1)
    run = Run(tmp_path / "run")
    train(config, run, resume=False, test=False, reporter=Reporter())
    scores = {f"step-{record['step']:08d}": record["loss"] for record in records(run.path, "valid")}
    names = sorted(scores)[-2:] if which == "last" else sorted(scores, key=scores.__getitem__)[:2]
    assert {checkpoint.name for checkpoint in run.checkpoints()} >= set(names)
    made = run.checkpoints_path / "average-00000006"
    if made.is_dir():  # it is kept only where it scores better
        assert (run.path / "best").read_text().strip() == made.name
        for name, tensor in run.best().weights().items():
            parts = [checkpoint.weights()[name] for checkpoint in run.checkpoints() if checkpoint.name in names]
            torch.testing.assert_close(tensor, sum(parts) / 2)
    else:
        assert min(scores.values()) == scores[(run.path / "best").read_text().strip()]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_and_resumes_on_the_cpu(tmp_path: Path, corpus: Path, precision: str) -> None:
    run = Run(tmp_path / "run")
    train(settings(corpus, train__precision=precision), run, resume=False, test=False, reporter=Reporter())
    before = run.latest()
    assert before is not None
    assert bool(before.state()["scaler"]) == (precision == "fp16")
    longer = settings(corpus, train__precision=precision, train__steps=8)
    train(longer, run, resume=True, test=False, reporter=Reporter())
    losses = [record["loss"] for record in records(run.path, "train")]
    assert len(losses) == 8
    assert np.isfinite(losses).all()


def test_numbers_that_are_not_finite_stop_training_with_advice(tmp_path: Path, corpus: Path) -> None:
    config = settings(corpus, train__steps=50, train__valid_every=50)
    job = open_job(config, Run(tmp_path / "run"), resume=False, test=False, say=lambda text: None)
    trainer = Trainer(job, Reporter(), StopSignals())
    with torch.no_grad():
        trainer.model.decoder.bridge.bias[0] = float("nan")
    others = {n: p.clone() for n, p in trainer.model.named_parameters() if n != "decoder.bridge.bias"}
    with pytest.raises(NumericalError, match=r"lines of the training data: \d+.*train\.learning_rate"):
        trainer.fit()
    for name, tensor in others.items():  # no optimizer step was taken
        assert torch.equal(tensor, dict(trainer.model.named_parameters())[name])
    assert not job.run.checkpoints()


def test_teacher_forcing_below_one_changes_the_path_and_is_reproducible(tmp_path: Path, corpus: Path) -> None:
    losses = []
    for name, ratio in (("full", 1.0), ("half", 0.5), ("again", 0.5)):
        config = settings(corpus, train__teacher_forcing__ratio=ratio)
        train(config, Run(tmp_path / name), resume=False, test=False, reporter=Reporter())
        losses.append([record["loss"] for record in records(tmp_path / name, "train")])
    assert losses[1] == losses[2]
    assert losses[0] != losses[1]


def test_a_run_can_start_from_another(tmp_path: Path, corpus: Path) -> None:
    first, second = Run(tmp_path / "first"), Run(tmp_path / "second")
    train(settings(corpus), first, resume=False, test=False, reporter=Reporter())
    config = settings(corpus, train__init_from=str(first.path), train__learning_rate=1e-30)
    train(config, second, resume=False, test=False, reporter=Reporter())
    for name, tensor in first.best().weights().items():
        torch.testing.assert_close(second.best().weights()[name], tensor)
    assert second.tokenizers()[0].model == first.tokenizers()[0].model
    other = settings(corpus, train__init_from=str(first.path), model__decoder__width=9)
    with pytest.raises(RunError, match="does not fit"):
        train(other, Run(tmp_path / "third"), resume=False, test=False, reporter=Reporter())


def test_minutes_end_training_too(tmp_path: Path, corpus: Path) -> None:
    config = settings(corpus, train__minutes=0.02)
    tree = config.model_dump(exclude_none=True)
    del tree["train"]["steps"]
    run = Run(tmp_path / "run")
    config = check_config(tree, origin="test")
    train(config, run, resume=False, test=False, reporter=Reporter())
    latest = run.latest()
    assert latest is not None
    assert latest.state()["last_validated"] == latest.step
    assert json.loads((run.path / "finished.json").read_text())["seconds"] >= 1.2
    train(config, run, resume=True, test=False, reporter=Reporter())
    assert Run(run.path).latest() == latest


def test_a_stop_during_averaging_is_made_up_for(tmp_path: Path, corpus: Path) -> None:
    """The signal comes when all updates are done: the run that goes on makes the average, and only then is finished."""
    config = settings(corpus, train__average=3, train__metric="loss", train__label_smoothing=0.0)
    straight, cut = Run(tmp_path / "straight"), Run(tmp_path / "cut")
    train(config, straight, resume=False, test=False, reporter=Reporter())

    job = open_job(config, cut, resume=False, test=False, say=lambda text: None)
    signals = StopSignals()
    trainer = Trainer(job, Reporter(), signals)
    average = trainer._average

    def stop_before_averaging() -> None:
        signals.received = 15
        average()

    trainer._average = stop_before_averaging  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        trainer.fit()
    assert not (cut.path / "finished.json").exists()
    train(config, cut, resume=True, test=False, reporter=Reporter())
    assert (cut.path / "best").read_text() == (straight.path / "best").read_text()
    for name, tensor in straight.best().weights().items():
        assert torch.equal(tensor, cut.best().weights()[name])


def test_going_on_does_not_forget_a_better_average(tmp_path: Path, corpus: Path) -> None:
    run = Run(tmp_path / "run")
    config = settings(corpus, train__average=3, train__metric="loss", train__learning_rate=0.05, train__warmup=0)
    train(config, run, resume=False, test=False, reporter=Reporter())
    best = (run.path / "best").read_text()
    end = json.loads((run.path / "finished.json").read_text())
    assert end["best_name"] == best.strip()
    longer = settings(
        corpus, train__average=3, train__metric="loss", train__learning_rate=0.05, train__warmup=0, train__steps=7
    )
    train(longer, run, resume=True, test=False, reporter=Reporter())
    after = json.loads((run.path / "finished.json").read_text())
    assert after["best_score"] >= end["best_score"]
    assert Run(run.path).config().train.steps == 7
