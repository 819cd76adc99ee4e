"""The trainer in one process: accumulation, patience, averages, precision, bad numbers, a start from another run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from translate.config import Config, check_config
from translate.data.batches import Batch, collate
from translate.errors import ConfigError, NumericalError, RunError, Stopped
from translate.run.checkpoint import Checkpoint
from translate.run.directory import Run
from translate.training.averaging import split_raw
from translate.training.logging import Reporter
from translate.training.loop import Trainer
from translate.training.prepare import TrainingInputs, open_inputs
from translate.training.signals import StopSignals
from translate.training.train import train


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
        "logging": {"every": 1, "tensorboard": False, "samples": 1, "pictures": False},
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

    def __init__(self, inputs: TrainingInputs, groups: list[list[int]]) -> None:
        self.batches = iter([collate(inputs.train, np.array(rows)) for rows in groups])

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
        inputs = open_inputs(config, Run(tmp_path / name), resume=False, test=False, say=lambda text: None)
        trainer = Trainer(inputs, Reporter(), StopSignals())
        trainer._update(Given(inputs, groups))  # type: ignore[arg-type]
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
    inputs = open_inputs(config, Run(tmp_path / "run"), resume=False, test=False, say=lambda text: None)
    trainer = Trainer(inputs, Reporter(), StopSignals())
    with torch.no_grad():
        trainer.model.decoder.bridge.bias[0] = float("nan")
    others = {n: p.clone() for n, p in trainer.model.named_parameters() if n != "decoder.bridge.bias"}
    with pytest.raises(NumericalError, match=r"lines of the training data: \d+.*train\.learning_rate"):
        trainer.fit()
    for name, tensor in others.items():  # no optimizer step was taken
        assert torch.equal(tensor, dict(trainer.model.named_parameters())[name])
    assert not inputs.run.checkpoints()


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

    inputs = open_inputs(config, cut, resume=False, test=False, say=lambda text: None)
    signals = StopSignals()
    trainer = Trainer(inputs, Reporter(), signals)
    average = trainer._try_average

    def stop_before_averaging() -> None:
        signals.received = 15
        average()

    trainer._try_average = stop_before_averaging  # type: ignore[method-assign]
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


# -- a moving average of the weights ----------------------------------------------------------------------------------


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def moved(mean: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], decay: float) -> dict[str, torch.Tensor]:
    return {name: decay * value + (1 - decay) * weights[name] for name, value in mean.items()}


def assert_all_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6, msg=name)


def test_the_moving_average_is_what_is_validated_and_saved(tmp_path: Path, corpus: Path) -> None:
    plain, run = Run(tmp_path / "plain"), Run(tmp_path / "run")
    fast = {"train__learning_rate": 0.05, "train__warmup": 0, "train__keep_last": 9, "train__metric": "loss"}
    train(settings(corpus, **fast), plain, resume=False, test=False, reporter=Reporter())
    config = settings(corpus, **fast, train__ema=0.3)
    inputs = open_inputs(config, run, resume=False, test=False, say=lambda text: None)
    trainer = Trainer(inputs, Reporter(), StopSignals())
    raw, update = [weights_of(trainer)], trainer._update

    def watched(stream: Any) -> None:
        update(stream)
        raw.append(weights_of(trainer))

    trainer._update = watched  # type: ignore[method-assign]
    trainer.fit()
    assert_all_close(weights_of(trainer), raw[-1])

    mean = raw[0]
    for count, weights in enumerate(raw[1:], start=1):
        mean = moved(mean, weights, min(0.3, (1 + count) / (10 + count)))
        if count % 2 == 0:
            checkpoint = run.checkpoints()[count // 2 - 1]
            assert checkpoint.step == count
            assert_all_close(checkpoint.weights(), mean)
            assert_all_close(split_raw(checkpoint.optimizer())[0], weights)
    assert_all_close(dict(run.load_model(run.latest()).named_parameters()), mean)

    losses = [[record["loss"] for record in records(path, "train")] for path in (plain.path, run.path)]
    assert losses[0] == losses[1], "the average must not change what is learnt"
    valid = [[record["loss"] for record in records(path, "valid")] for path in (plain.path, run.path)]
    assert valid[0] != valid[1]
    again = Trainer(open_inputs(config, run, resume=True, test=False, say=lambda text: None), Reporter(), StopSignals())
    again.model.eval()
    assert again.validation._loss() == pytest.approx(valid[0][-1])
    assert again.snapshots.ema is not None
    with again.snapshots.ema.in_place():
        assert again.validation._loss() == pytest.approx(valid[1][-1])
    plain_checkpoint = plain.latest()
    assert plain_checkpoint is not None
    assert split_raw(plain_checkpoint.optimizer())[0] == {}


@pytest.mark.parametrize("step", [2, 4])
def test_a_run_with_a_moving_average_resumes_bit_for_bit(tmp_path: Path, corpus: Path, step: int) -> None:
    config = settings(corpus, train__ema=0.8, train__average=2, train__keep_last=9, train__metric="loss")
    straight, run = Run(tmp_path / "straight"), Run(tmp_path / "run")
    train(config, straight, resume=False, test=False, reporter=Reporter())
    shutil.copytree(straight.path, run.path)
    for checkpoint in run.checkpoints_path.iterdir():
        if Checkpoint(checkpoint).step > step:
            shutil.rmtree(checkpoint)
    train(config, run, resume=True, test=False, reporter=Reporter())
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [2, 4, 6]
    names = sorted(path.name for path in straight.checkpoints_path.iterdir())
    for name in names:
        for file in ("model.safetensors", "optimizer.safetensors"):
            ours, theirs = (
                (path / name / file).read_bytes() for path in (run.checkpoints_path, straight.checkpoints_path)
            )
            assert ours == theirs, (name, file)
    assert (run.path / "best").read_text() == (straight.path / "best").read_text()


def test_an_update_that_is_left_out_does_not_count_for_the_average(tmp_path: Path, corpus: Path) -> None:
    config = settings(corpus, train__ema=0.9)
    inputs = open_inputs(config, Run(tmp_path / "run"), resume=False, test=False, say=lambda text: None)
    trainer = Trainer(inputs, Reporter(), StopSignals())
    mean, loss = weights_of(trainer), trainer.objective.forward
    stream = Given(inputs, [[0, 1], [2, 3], [4, 5]])
    for count, factor in ((1, 1.0), (1, float("inf")), (2, 1.0)):
        trainer.objective.forward = lambda *inputs, by=factor: tuple(part * by for part in loss(*inputs))  # type: ignore
        trainer._update(stream)  # type: ignore[arg-type]
        if factor == 1.0:
            mean = moved(mean, weights_of(trainer), (1 + count) / (10 + count))
    assert trainer.progress.skipped == 1
    assert trainer.snapshots.ema is not None
    with trainer.snapshots.ema.in_place():
        assert_all_close(weights_of(trainer), mean)


# -- word vectors to start from ---------------------------------------------------------------------------------------


class Listening(Reporter):
    """A reporter that keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def started(config: Config, run: Path) -> tuple[Trainer, list[str]]:
    inputs = open_inputs(config, Run(run), resume=False, test=False, say=lambda text: None)
    reporter = Listening()
    return Trainer(inputs, reporter, StopSignals()), reporter.said


@pytest.fixture
def vectors(tmp_path: Path) -> tuple[Path, Path]:
    """Vectors of some small and of some capital letters; both files know "a", "A" and one word nobody knows."""
    rows = {"a": 1, "A": 2, "b": 3, "nobody": 4}, {"A": 5, "B": 6, "a": 7, "nobody": 8}
    for side, values in zip(("source", "target"), rows, strict=True):
        lines = [f"{token} {value} 0 0 0 0 {-value}\n" for token, value in values.items()]
        (tmp_path / f"{side}.vec").write_text("".join(["4 6\n", *lines]))
    return tmp_path / "source.vec", tmp_path / "target.vec"


@pytest.mark.parametrize("tied", ["none", "two", "three"])
def test_embeddings_start_from_word_vectors(
    tmp_path: Path, corpus: Path, vectors: tuple[Path, Path], tied: str
) -> None:
    words = {"tokenizer__kind": "word", "model__embedding__tied": tied}
    source, target = vectors
    files = {"train__source_embeddings": str(source), "train__target_embeddings": str(target)}
    random, _ = started(settings(corpus, **words), tmp_path / "random")
    trainer, said = started(settings(corpus, **words, **files, train__ema=0.9), tmp_path / "run")
    assert said == [
        f"source embeddings: 4 of 16 pieces found in {source}",
        f"target embeddings: 3 of 16 pieces found in {target}",
    ]
    pieces = trainer.inputs.source.pieces(range(16))
    in_source = {"▁a": 1, "▁A": 2, "▁b": 3, "▁B": 3}
    in_target = {"▁A": 5, "▁B": 6, "▁a": 7}
    assert trainer.snapshots.ema is not None
    with trainer.snapshots.ema.in_place():  # the average starts from them too
        tables = trainer.model.src_embed.table.weight, trainer.model.decoder.embed.table.weight
        before = random.model.src_embed.table.weight, random.model.decoder.embed.table.weight
        known: list[dict[str, Any]] = [in_source, in_target]
        if tied == "three":
            known = [{**in_source, **in_target}] * 2
        for table, old, values in zip(tables, before, known, strict=True):
            for index, piece in enumerate(pieces):
                value = values.get(piece)
                expected = old[index] if value is None else torch.tensor([value, 0.0, 0.0, 0.0, 0.0, -value])
                assert torch.equal(table[index], expected), piece


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, ": no such file. Give a text file of word vectors"),
        (b"2 5\n", ":1: the vectors are 5 wide, but model.embedding.width = 6"),
        (b"a 1 2 3 4 5\n", ":1: the vectors are 5 wide"),
        (b"a 1 2 3 4 5 6\nb 1 2\n", ":2: 'b 1 2' is not a token and 6 finite numbers"),
        (b"a 1 2 3 4 5 6\nb\xff 1 2 3 4 5 6\n", ":2: not valid UTF-8"),
        (b"", " holds no vectors"),
    ],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_bad_file_of_vectors_is_refused_before_there_is_a_run(
    tmp_path: Path, corpus: Path, content: bytes | None, complaint: str, side: str
) -> None:
    file = tmp_path / "bad.vec"
    if content is not None:
        file.write_bytes(content)
    run = Run(tmp_path / "run")
    config = settings(corpus, **{f"train__{side}_embeddings": str(file)})
    with pytest.raises(ConfigError) as caught:
        train(config, run, resume=False, test=False, reporter=Reporter())
    assert str(caught.value).startswith(f"train.{side}_embeddings: {file}{complaint}")
    assert not run.exists()
    assert {path.name for path in run.path.iterdir()} <= {".lock"}
    file.write_text("a 1 2 3 4 5 6\n")
    train(config, run, resume=False, test=False, reporter=Reporter())


def test_word_vectors_are_read_at_the_start_only(tmp_path: Path, corpus: Path, vectors: tuple[Path, Path]) -> None:
    run = Run(tmp_path / "run")
    given = {"train__source_embeddings": str(vectors[0]), "tokenizer__kind": "word"}
    train(settings(corpus, **given), run, resume=False, test=False, reporter=Reporter())
    vectors[0].unlink()
    run.load_model()
    reporter = Listening()
    train(settings(corpus, **given, train__steps=8), run, resume=True, test=False, reporter=reporter)
    assert not [text for text in reporter.said if "embeddings" in text]
    latest = run.latest()
    assert latest is not None
    assert latest.step == 8
