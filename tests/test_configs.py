"""Every configuration file takes a training step, and on the demo's every member of the zoo is one override away."""

from __future__ import annotations

from pathlib import Path

import pytest

from translate.checkpoint import Run
from translate.cli.zoo import zoo
from translate.config import load_config
from translate.training.logging import Reporter
from translate.training.train import train

ROOT = Path(__file__).resolve().parent.parent
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
            *overrides,
        ],
    )
    train(settings, Run(run), resume=False, test=False, reporter=Reporter())
    return Run.open(run)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_file_takes_one_step(tmp_path: Path, little_demo: Path, config: Path) -> None:
    latest = take_one_step(config, little_demo, tmp_path / "run").latest()
    assert latest is not None
    assert latest.step == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "override",
    [f"{setting}={name}" for setting, members in zoo().items() for name in members]
    + ["model.decoder.input_feeding=false"],
)
def test_every_member_is_one_override_away(tmp_path: Path, little_demo: Path, override: str) -> None:
    run = take_one_step(ROOT / "configs" / "demo.toml", little_demo, tmp_path / "run", override)
    assert run.load_model().num_parameters > 1_000_000
