"""Small models learn to copy and to reverse digits, and their attention shows how."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from translate.checkpoint import Run
from translate.config import Config, check_config
from translate.decoding.aligner import align
from translate.decoding.translator import Translator
from translate.training.logging import Reporter
from translate.training.train import train

UPDATES = 400

Settings = dict[str, dict[str, object]]


def digits(folder: Path, reverse: bool, shortest: int = 3, longest: int = 7) -> Path:
    """Pairs of digit strings, the second a copy or the reversal of the first; no string twice."""
    generator = np.random.default_rng(7)
    seen: set[str] = set()
    for name, count in (("train", 1500), ("valid", 50), ("test", 100)):
        lines: list[str] = []
        while len(lines) < count:
            line = " ".join(map(str, generator.integers(0, 10, generator.integers(shortest, longest + 1))))
            if line not in seen:
                seen.add(line)
                lines.append(line)
        turned = [line[::-1] if reverse else line for line in lines]
        for ending, side in (("a", lines), ("b", turned)):
            (folder / f"{name}.{ending}").write_text("".join(line + "\n" for line in side))
    return folder


def settings(folder: Path, model: Settings) -> Config:
    tree = {
        "data": {"folder": str(folder), "source_lang": "a", "target_lang": "b"},
        "tokenizer": {"vocabulary": 32, "byte_fallback": False},
        "model": {
            "embedding": {"width": 32, "dropout": 0.0, "tied": "three"},
            "encoder": {"width": 32, "dropout": 0.0},
            "attention": {"width": 32, **model.get("attention", {})},
            "decoder": {"width": 32, "dropout": 0.0, **model.get("decoder", {})},
        },
        "train": {
            "steps": UPDATES,
            "threads": 1,
            "batch_tokens": 400,
            "learning_rate": 8e-3,
            "warmup": 40,
            "label_smoothing": 0.0,
            "valid_every": UPDATES,
        },
        "search": {"beam": 2},
        "logging": {"tensorboard": False, "samples": 0},
    }
    return check_config(tree, origin="test")


def held_out(folder: Path) -> tuple[list[str], list[str]]:
    source, target = ((folder / f"test.{ending}").read_text().split("\n")[:-1] for ending in "ab")
    return source, target


def trained(folder: Path, config: Config) -> tuple[float, Translator]:
    """The share of test lines that come out right, and the translator."""
    run = Run(folder / "run")
    train(config, run, resume=False, test=False, reporter=Reporter())
    translator = Translator.load(run.path)
    sources, targets = held_out(folder)
    written = [best[0].text for best in translator.translate(sources)]
    return float(np.mean([one == other for one, other in zip(written, targets, strict=True)])), translator


def looks_right(folder: Path, translator: Translator, reverse: bool) -> float:
    """The share of target digits whose link goes to the digit they come from."""
    right = []
    for sentence in align(translator, *held_out(folder)):
        last = len(sentence.source_words) - 1
        links = {link.target: link.source for link in sentence.links}
        right += [links.get(t) == (last - t if reverse else t) for t in range(last + 1)]
    return float(np.mean(right))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True], ids=["copy", "reverse"])
@pytest.mark.parametrize(
    "model",
    [
        {"decoder": {"kind": "bahdanau"}, "attention": {"score": "additive"}},
        {"decoder": {"kind": "luong"}, "attention": {"score": "general"}},
    ],
    ids=["bahdanau-additive", "luong-general"],
)
def test_attention_learns_where_to_look(tmp_path: Path, model: Settings, reverse: bool) -> None:
    right, translator = trained(tmp_path, settings(digits(tmp_path, reverse), model))
    assert right > 0.9
    assert looks_right(tmp_path, translator, reverse) > 0.85


@pytest.mark.slow
def test_one_vector_is_enough_for_short_sequences(tmp_path: Path) -> None:
    folder = digits(tmp_path, reverse=False, shortest=2, longest=4)
    right, translator = trained(folder, settings(folder, {"decoder": {"kind": "plain"}}))
    assert right > 0.8
    assert translator.translate(["1 2"])[0][0].attention is None
