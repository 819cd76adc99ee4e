"""A run's prepared pairs are used again exactly where they are what would be prepared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from translate.config import load_config
from translate.data.dataset import PairDataset
from translate.errors import DataError, RunError
from translate.run.directory import Run
from translate.training.prepare import open_inputs

SPLITS = ("train", "valid")


def opened(project: Path, run: Path, *overrides: str, resume: bool = False) -> list[str]:
    """Open a job, and give back what was said."""
    said: list[str] = []
    open_inputs(load_config(project, overrides), Run(run), resume, test=False, say=said.append)
    return said


def files(run: Path) -> dict[str, tuple[int, int]]:
    """What changes when a file is written again, even with the same bytes."""
    stats = {split: (run / "cache" / f"{split}.arrow").stat() for split in SPLITS}
    return {split: (stat.st_ino, stat.st_mtime_ns) for split, stat in stats.items()}


def contents(run: Path) -> dict[str, bytes]:
    return {split: (run / "cache" / f"{split}.arrow").read_bytes() for split in SPLITS}


@pytest.fixture
def run(project: Path, tmp_path: Path) -> Path:
    """A run before its first update."""
    opened(project, tmp_path / "run")
    return tmp_path / "run"


def test_a_resumed_run_takes_its_prepared_pairs(project: Path, run: Path) -> None:
    before = files(run)
    assert opened(project, run, resume=True) == []
    assert files(run) == before


def unmade(run: Path) -> None:
    """Turn back the clock to the moment before config.toml makes the folder a run."""
    (run / "config.toml").unlink()
    shutil.rmtree(run / "checkpoints")
    for side in ("source", "target"):
        (run / f"tokenizer.{side}.model").unlink()


def test_a_run_that_died_before_it_was_one_takes_them_as_well(project: Path, run: Path) -> None:
    before = files(run)
    unmade(run)
    assert any(line.endswith(": 200 pairs kept, prepared before.") for line in opened(project, run))
    assert files(run) == before


def change_corpus(project: Path) -> tuple[str, ...]:
    path = project.parent / "data" / "train.fr"
    path.write_bytes(path.read_bytes().replace(b" ", b"  ", 1))  # the same words, so perhaps the same tokenizer
    return ()


@pytest.mark.parametrize(
    "change",
    [
        change_corpus,
        lambda _: ("data.max_length=30",),
        lambda _: ("data.max_ratio=1.2",),
        lambda _: ("tokenizer.vocabulary=350",),
        lambda _: ("data.source_lang=fr", "data.target_lang=en"),
    ],
    ids=["corpus", "length", "ratio", "tokenizer", "direction"],
)
def test_another_try_with_other_content_prepares_again(
    project: Path, run: Path, tmp_path: Path, change: Callable[[Path], tuple[str, ...]]
) -> None:
    before = files(run)
    unmade(run)
    overrides = change(project)
    opened(project, run, *overrides)
    assert files(run)["train"] != before["train"]
    opened(project, tmp_path / "fresh", *overrides)
    assert contents(run) == contents(tmp_path / "fresh")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("damage", ["missing", "cut", "other", "empty"])
def test_what_is_not_the_runs_own_is_prepared_again(
    project: Path, run: Path, tmp_path: Path, split: str, damage: str
) -> None:
    before = contents(run)
    path = run / "cache" / f"{split}.arrow"
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(before[split][: len(before[split]) // 2])
    else:
        opened(project, tmp_path / "other", "data.max_length=30")
        other = tmp_path / "other" / "cache" / f"{split}.arrow"
        assert PairDataset(other).key != PairDataset(path).key
        path.write_bytes(b"" if damage == "empty" else other.read_bytes())
    opened(project, run, resume=True)
    assert contents(run) == before


def test_pairs_too_few_to_train_on_are_never_used_again(project: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match=r"0 kept.*Training needs at least 2 pairs"):
            opened(project, tmp_path / "run", "data.max_length=1")
        assert (tmp_path / "run" / "cache" / "train.arrow").is_file()
    opened(project, tmp_path / "run")


def test_other_files_in_the_corpus_place_are_refused(project: Path, run: Path) -> None:
    change_corpus(project)
    with pytest.raises(RunError, match="has changed since the run was started"):
        opened(project, run, resume=True)
