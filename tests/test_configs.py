"""Every configuration file takes a training step, and on the demo's every member of the zoo is one override away."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from translate.cli.zoo import zoo
from translate.config import load_config
from translate.errors import ConfigError
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.training.logging import Reporter
from translate.training.train import train

ROOT = Path(__file__).resolve().parent.parent
WIDEST = 512
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))


@pytest.fixture(scope="module")
def little_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first lines of the demo corpus."""
    folder = tmp_path_factory.mktemp("demo")
    for name, count in (("train", 300), ("valid", 4), ("test", 4)):
        for language in ("en", "fr"):
            lines = (ROOT / "data" / "demo" / f"{name}.{language}").read_bytes().split(b"\n")[:count]
            (folder / f"{name}.{language}").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def slimmed(config: Path) -> list[str]:
    """Overrides that make a model for GPUs a tenth as wide: all that it is made of stays."""
    model = load_config(config).model
    if model.decoder.width <= WIDEST:
        return []
    sections = {"embedding": model.embedding, "encoder": model.encoder, "decoder": model.decoder}
    widths = {name: section.width for name, section in sections.items()} | {"attention": model.attention.width}
    return [f"model.{name}.width={width // 40 * 4}" for name, width in widths.items()]  # four heads divide it


def take_one_step(config: Path, folder: Path, run: Path, *overrides: str) -> Run:
    settings = load_config(
        config,
        [
            f"data.folder={folder}",
            "data.train=train",
            "data.valid=valid",
            "data.test=test",
            "data.source_lang=en",
            "data.target_lang=fr",
            "train.steps=1",
            "train.threads=1",
            "train.batch_tokens=100",
            "logging.tensorboard=false",
            "logging.pictures=false",
            *overrides,
        ],
    )
    train(settings, Run(run), resume=False, test=False, reporter=Reporter())
    return Run.open(run)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_file_takes_one_step(tmp_path: Path, little_demo: Path, config: Path) -> None:
    latest = take_one_step(config, little_demo, tmp_path / "run", *slimmed(config)).latest()
    assert latest is not None
    assert latest.step == 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_file_says_what_it_reaches(config: Path) -> None:
    settings = load_config(config)
    with torch.device("meta"):  # whole, without the memory for it
        model = Seq2Seq(settings.model, *[settings.tokenizer.vocabulary] * 2, settings.data.max_length)
    assert 1e6 < model.num_parameters < 300e6
    if config.stem != "demo":  # whose figures are in the README
        comments = "\n".join(line for line in config.read_text().split("\n") if line.startswith("#"))
        assert "# Reaches: " in comments
        assert f"translate train configs/{config.name}" in comments


TUTORIAL = "model.decoder.kind=tutorial"
MEMBERS = [f"{setting}={name}" for setting, members in zoo().items() for name in members]
EXTRAS = [
    "model.attention.heads=4",
    "model.attention.hops=2",
    "model.attention.per_feature=true",
    "model.attention.coverage=true",
    "model.decoder.copy=true",
    "model.decoder.cell=lstm",
    "model.decoder.layers=2",
    "model.decoder.layer_norm=true",
    "model.decoder.variational=true",
    "model.decoder.word_dropout=0.1",
    "model.decoder.input_feeding=false",
    "model.encoder.layers=2",
    "model.encoder.layer_norm=true",
    "model.encoder.variational=true",
    "model.encoder.word_dropout=0.1",
    "model.encoder.self_attention=true",
]


@pytest.mark.slow
@pytest.mark.parametrize("override", [one for one in MEMBERS if one != TUTORIAL] + EXTRAS)
def test_every_member_is_one_override_away(tmp_path: Path, little_demo: Path, override: str) -> None:
    run = take_one_step(ROOT / "configs" / "demo.toml", little_demo, tmp_path / "run", override)
    assert run.load_model().num_parameters > 1_000_000


@pytest.mark.slow
def test_the_tutorial_needs_its_score(tmp_path: Path, little_demo: Path) -> None:
    location = "model.attention.score=location"
    run = take_one_step(ROOT / "configs" / "demo.toml", little_demo, tmp_path / "run", TUTORIAL, location)
    assert run.load_model().num_parameters > 1_000_000
    with pytest.raises(ConfigError, match=r"use attention\.score = 'location'"):
        take_one_step(ROOT / "configs" / "demo.toml", little_demo, tmp_path / "other", TUTORIAL)
