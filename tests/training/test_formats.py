"""A corpus trains the same whatever kind of file it comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

Pairs = list[tuple[str, str]]
# Pairs that a careless reader would tear, trim or unquote; no tab, which a TSV column cannot hold.
ODD: Pairs = [('"quoted', 'entre "guillemets'), ("a\u2028b", "c\u0085d"), ("1,5 €", "'tick"), ("null", "NaN")]


def write_plain(folder: Path, name: str, pairs: Pairs) -> None:
    for side, ending in enumerate(("en", "fr")):
        (folder / f"{name}.{ending}").write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())


def write_tsv(folder: Path, name: str, pairs: Pairs) -> None:
    (folder / f"{name}.tsv").write_bytes("".join(f"{src}\t{tgt}\tnote\n" for src, tgt in pairs).encode())


def write_jsonl(folder: Path, name: str, pairs: Pairs) -> None:
    lines = (json.dumps({"id": i, "fr": tgt, "en": src}) for i, (src, tgt) in enumerate(pairs))
    (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))


def write_jsonl_struct(folder: Path, name: str, pairs: Pairs) -> None:
    lines = (json.dumps({"translation": {"en": src, "fr": tgt}}, ensure_ascii=False) for src, tgt in pairs)
    (folder / f"{name}.jsonl").write_bytes("".join(line + "\n" for line in lines).encode())


def write_parquet(folder: Path, name: str, pairs: Pairs) -> None:
    columns = {"fr": [tgt for _, tgt in pairs], "en": [src for src, _ in pairs]}
    pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=30)


def write_hub(folder: Path, name: str, pairs: Pairs) -> None:
    """As data sets of the hub are laid out: shards of Parquet under data/, named by split."""
    (folder / "data").mkdir(exist_ok=True)
    half = len(pairs) // 2
    for shard, part in enumerate((pairs[:half], pairs[half:])):
        rows = [{"en": src, "fr": tgt} for src, tgt in part]
        path = folder / "data" / f"{name}-{shard:05d}-of-00002.parquet"
        pq.write_table(pa.table({"translation": rows}), path)


WRITERS: dict[str, Callable[[Path, str, Pairs], None]] = {
    "plain": write_plain,
    "tsv": write_tsv,
    "jsonl": write_jsonl,
    "jsonl with a struct": write_jsonl_struct,
    "parquet": write_parquet,
    "hub": write_hub,
}


@pytest.fixture
def train(command_line: Callable[..., Any], project: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Write the corpus in one kind of file, train on it for two updates, and give back the run."""
    original = project.parent / "data"

    def call(kind: str) -> Path:
        folder = tmp_path / kind.replace(" ", "-")
        folder.mkdir()
        names = {"train": "train", "valid": "validation" if kind == "hub" else "valid", "test": "test"}
        for split, name in names.items():
            sides = [(original / f"{split}.{ending}").read_text().split("\n")[:-1] for ending in ("en", "fr")]
            WRITERS[kind](folder, name, [*zip(*sides, strict=True), *ODD])
        settings = ("train.steps=2", "train.valid_every=2", f"data.valid={names['valid']}")
        where = f"data.folder={'hub:' if kind == 'hub' else ''}{folder}"
        run = folder / "run"
        answer = command_line("train", project, where, *settings, "--run", run)
        assert answer.code == 0, answer.err
        assert "204 pairs read, 204 kept." in answer.err
        assert "test: BLEU" in answer.err
        return run

    return call


def learned(run: Path) -> dict[str, bytes]:
    """What must not depend on the kind of file."""
    files = [f"data/{split}.{side}" for split in ("valid", "test") for side in ("source", "target")]
    files += ["tokenizer.source.model", "checkpoints/step-00000002/model.safetensors", "translations/test.txt"]
    return {name: (run / name).read_bytes() for name in files}


@pytest.fixture(scope="module")
def plain() -> dict[str, dict[str, bytes]]:
    """What plain files gave, kept from the first test that trained on them."""
    return {}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_corpus_gives_the_same_run(
    train: Callable[[str], Path], plain: dict[str, dict[str, bytes]], kind: str
) -> None:
    if not plain:
        plain["learned"] = learned(train("plain"))
        assert plain["learned"]["data/test.source"].count(b"\n") == 12 + len(ODD)
    if kind != "plain":
        assert learned(train(kind)) == plain["learned"]


def test_two_kinds_at_once_are_refused(command_line: Callable[..., Any], project: Path, tmp_path: Path) -> None:
    write_tsv(project.parent / "data", "train", ODD)
    answer = command_line("train", project, "--run", tmp_path / "run")
    assert answer.code == 2
    assert "data.train = 'train' fits more than one corpus: train.en + train.fr; train.tsv" in answer.err


def test_hub_folder_can_be_resumed(
    train: Callable[[str], Path], command_line: Callable[..., Any], project: Path
) -> None:
    run = train("hub")
    settings = ("train.steps=3", "train.valid_every=2", "data.valid=validation", f"data.folder=hub:{run.parent}")
    answer = command_line("train", project, *settings, "--run", run, "--resume", "--no-test")
    assert answer.code == 0, answer.err
    assert (run / "last").read_text() == "step-00000003\n"
