"""`translate init --demo`: the demo corpus and its settings, as the repository has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from translate.config import load_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trial(answer: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """The folder that init wrote, and what it said."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "trial", answer("init", "trial", "--demo")


def test_the_demo_corpus_is_the_one_of_the_repository(trial: tuple[Path, str]) -> None:
    folder, said = trial
    places = (folder / "data", ROOT / "data" / "demo")
    written, own = ({path.name: path.read_bytes() for path in place.iterdir()} for place in places)
    assert written == own
    assert "12,000 pairs for training, 500 for validation, 500 for test" in said
    assert said.endswith("Next: translate train trial/config.toml\n")


def test_the_settings_of_the_demo_are_those_of_the_repository(trial: tuple[Path, str]) -> None:
    folder, _ = trial
    assert sorted(path.name for path in folder.iterdir()) == ["config.toml", "data"]
    written, own = load_config(folder / "config.toml"), load_config(ROOT / "configs" / "demo.toml")
    assert written.data.folder == str(folder / "data")
    assert written.model_copy(update={"data": own.data}) == own
    assert written.data.model_copy(update={"folder": own.data.folder}) == own.data
    text = (folder / "config.toml").read_text(encoding="utf-8")
    assert "# Stop after this many updates.\nsteps = 800\n" in text, "each setting stands under its meaning"
