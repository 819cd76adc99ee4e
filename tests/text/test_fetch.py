"""Corpora of the hub come whole or not at all, from a folder in the hub's shape and from a hub on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.text.hub_server import serving
from translate.errors import DataError
from translate.text import fetch
from translate.text.fetch import CORPORA, Fetch

CARD = """---
dataset_info:
- config_name: {configuration}
  splits:
{splits}
configs:
- config_name: {configuration}
  data_files:
{files}
---
"""


def shape(folder: Path, configuration: str, splits: dict[str, list[dict[str, Any]]], shards: int = 2) -> None:
    """Write a data set as the hub has them: shards of Parquet, and a card that says how many rows there are."""
    (folder / configuration).mkdir(parents=True)
    for split, rows in splits.items():
        for shard in range(shards):
            part = rows[shard * len(rows) // shards : (shard + 1) * len(rows) // shards]
            path = folder / configuration / f"{split}-{shard:05d}-of-{shards:05d}.parquet"
            pq.write_table(pa.Table.from_pylist(part), path, row_group_size=10)
    card = CARD.format(
        configuration=configuration,
        splits="\n".join(
            f"  - name: {split}\n    num_bytes: 1\n    num_examples: {len(rows)}" for split, rows in splits.items()
        ),
        files="\n".join(f"  - split: {split}\n    path: {configuration}/{split}-*" for split in splits),
    )
    (folder / "README.md").write_text(card)


def translations(count: int, tag: str = "") -> list[dict[str, Any]]:
    return [{"translation": {"de": f"Satz {tag}{n}", "en": f"sentence {tag}{n}"}} for n in range(count)]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture
def wmt(tmp_path: Path) -> Path:
    folder = tmp_path / "hub" / "wmt" / "wmt14"
    rows = {"train": translations(60), "validation": translations(7, "v"), "test": translations(5, "t")}
    shape(folder, "de-en", rows)
    return folder


def test_three_splits_of_a_folder(wmt: Path, tmp_path: Path) -> None:
    note = Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=wmt).run()
    assert note.pairs == {"train": 60, "valid": 7, "test": 5}
    assert lines(tmp_path / "out" / "train.en") == [f"sentence {n}" for n in range(60)]
    assert lines(tmp_path / "out" / "train.de") == [f"Satz {n}" for n in range(60)]
    assert lines(tmp_path / "out" / "test.de") == [f"Satz t{n}" for n in range(5)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name.startswith((".", "fetch"))) == [
        "fetch-en-de.json"
    ]
    before = (tmp_path / "out" / "train.en").stat().st_mtime_ns
    assert Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=tmp_path / "gone").run().pairs == note.pairs
    assert (tmp_path / "out" / "train.en").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="another limit: None, not 5"):
        Fetch("wmt14", tmp_path / "out", ("en", "de"), limit=5, mirror=wmt).run()


def test_json_lines_under_the_names_of_the_recipes(tmp_path: Path) -> None:
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for split, count in (("train", 20), ("val", 4), ("test", 3)):
        rows = [{"en": f"a\u2028b {split} {n}", "de": f"c\td {n}"} for n in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    note = Fetch("multi30k", tmp_path / "out", ("de", "en"), mirror=folder).run()
    assert note.pairs == {"train": 20, "val": 4, "test2016": 3}
    assert lines(tmp_path / "out" / "val.en") == [f"a b val {n}" for n in range(4)]
    assert lines(tmp_path / "out" / "test2016.de") == [f"c d {n}" for n in range(3)]


def test_a_limit_reads_no_further(wmt: Path, tmp_path: Path) -> None:
    (wmt / "de-en" / "train-00001-of-00002.parquet").write_bytes(b"never looked at")
    note = Fetch("wmt14", tmp_path / "out", ("de", "en"), limit=6, mirror=wmt).run()
    assert note.pairs == {"train": 6, "valid": 6, "test": 5}
    assert lines(tmp_path / "out" / "train.de") == [f"Satz {n}" for n in range(6)]


def test_what_a_corpus_lacks_is_drawn_and_kept_apart(tmp_path: Path) -> None:
    rows = [{"translation": {"en": f"sentence {n % 700}", "fr": f"phrase {n}"}} for n in range(1400)]
    shape(tmp_path / "books", "en-fr", {"train": rows})
    note = Fetch("opus_books", tmp_path / "out", ("en", "fr"), mirror=tmp_path / "books").run()
    assert sum(note.pairs.values()) == 1400
    assert all(10 <= note.pairs[stem] <= 60 for stem in ("valid", "test"))
    sources = {stem: set(lines(tmp_path / "out" / f"{stem}.en")) for stem in note.pairs}
    assert not sources["train"] & sources["valid"]
    assert not sources["train"] & sources["test"]
    assert not sources["valid"] & sources["test"]


def test_held_out_sentences_stay_out_when_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_HELD_OUT", 2)
    rows = [{"translation": {"en": f"sentence {n % 700}", "fr": f"phrase {n}"}} for n in range(1400)]
    shape(tmp_path / "books", "en-fr", {"train": rows})
    note = Fetch("opus_books", tmp_path / "out", ("en", "fr"), mirror=tmp_path / "books").run()
    assert note.pairs == {"train": 1392, "valid": 2, "test": 2}, "four sentences occur once more, and are in no file"


def test_columns_that_are_not_named_by_language(tmp_path: Path) -> None:
    train = [{"english": f"one {n}", "non_english": f"un {n}"} for n in range(300)]
    shape(tmp_path / "t", "en-fr", {"train": train, "dev": [{"english": "two", "non_english": "deux"}]}, shards=1)
    note = Fetch("tatoeba", tmp_path / "out", ("fr", "en"), mirror=tmp_path / "t").run()
    assert note.pairs["valid"] == 1
    assert note.pairs["train"] + note.pairs["test"] == 300
    assert lines(tmp_path / "out" / "valid.fr") == ["deux"]


def test_a_wrong_count_is_an_error(wmt: Path, tmp_path: Path) -> None:
    card = wmt / "README.md"
    card.write_text(card.read_text().replace("num_examples: 60", "num_examples: 61"))
    with pytest.raises(DataError, match=r"60 pairs were received, but the data set has 61"):
        Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=wmt).run()
    assert not list((tmp_path / "out").glob("*.en"))
    card.write_text(card.read_text().replace("num_examples: 61", "num_examples: 60"))
    assert Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=wmt).run().pairs["train"] == 60


class Torn(Exception):
    """The line goes dead."""


@pytest.mark.parametrize("after", [1, 23, 30, 31, 59, 60])
def test_a_fetch_that_was_stopped_goes_on(
    wmt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    whole: Callable[..., Iterator[Any]] = fetch.rows_of

    def torn(rows: Any, where: str) -> Iterator[Any]:
        for number, row in enumerate(whole(rows, where), start=1):
            yield row
            if number == after:
                raise Torn

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "rows_of", torn)
        with pytest.raises(Torn):
            Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=wmt).run()
    assert not (tmp_path / "out" / "train.en").exists()
    # Whatever a killed process wrote after its last note is cut off.
    with (tmp_path / "out" / ".fetch-en-de" / "train.en").open("a") as file:
        file.write("half a li")
    (wmt / "de-en" / "train-00000-of-00002.parquet").touch()
    read = []

    def noted(rows: Any, where: str) -> Iterator[Any]:
        for row in whole(rows, where):
            read.append(where)
            yield row

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "rows_of", noted)
        Fetch("wmt14", tmp_path / "out", ("en", "de"), mirror=wmt).run()
    assert read.count("wmt14 (train)") == 60 - after, "what came before is not fetched again"
    assert lines(tmp_path / "out" / "train.en") == [f"sentence {n}" for n in range(60)]
    assert lines(tmp_path / "out" / "train.de") == [f"Satz {n}" for n in range(60)]


def test_files_of_others_are_left_alone(wmt: Path, tmp_path: Path) -> None:
    for ending in ("en", "de"):
        (tmp_path / f"train.{ending}").write_text("mine\n")
    with pytest.raises(DataError, match="already exist"):
        Fetch("wmt14", tmp_path, ("en", "de"), mirror=wmt).run()
    (tmp_path / "train.de").unlink()
    with pytest.raises(DataError, match=r"train\.en already exists and differs"):
        Fetch("wmt14", tmp_path, ("en", "de"), mirror=wmt).run()
    assert (tmp_path / "train.en").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("wmt99", ("en", "de"), "Choose from: multi30k, wmt14"),
        ("multi30k", ("en", "zh"), "multi30k has cs, de, en, fr, not en and zh"),
        ("tatoeba", ("de", "fr"), "one of the two must be en"),
        ("wmt14", ("en", "en"), "source and target are both 'en'"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, languages: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Fetch(name, tmp_path / "out", languages)
    assert not (tmp_path / "out").exists()


def test_languages_that_a_data_set_lacks(wmt: Path, tmp_path: Path) -> None:
    (wmt / "README.md").write_text(
        "---\nconfigs:\n- config_name: de-en\n  data_files: de-en/*\n- config_name: fr-en\n  data_files: x/*\n---\n"
    )
    with pytest.raises(DataError, match="it has no languages en-ru and ru-en; there are: de-en, fr-en"):
        Fetch("wmt14", tmp_path / "out", ("en", "ru"), mirror=wmt).run()


def test_every_corpus_has_a_training_split() -> None:
    for corpus in CORPORA.values():
        assert "train" in corpus.splits
        assert len(corpus.splits) + len(corpus.drawn) == 3


# -- over HTTP, in processes of their own, because the library reads the address when it is imported ------------------


def command(address: str, home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    environment |= {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "NO_COLOR": "1"}
    words = [sys.executable, "-m", "translate", "data", "fetch", *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_hub_on_loopback(wmt: Path, tmp_path: Path) -> None:
    with serving(wmt.parents[1]) as hub:
        done = command(hub.address, tmp_path / "home", "wmt14", tmp_path / "out")
        assert done.returncode == 0, (done.stderr, hub.asked)
        assert "60 pairs in train.en and .de, 7 pairs in valid.en and .de" in done.stdout
        assert lines(tmp_path / "out" / "train.en") == [f"sentence {n}" for n in range(60)]
        assert any("resolve" in asked and asked.endswith(".parquet") for asked in hub.asked), hub.asked
        missing = command(hub.address, tmp_path / "home", "opus-100", tmp_path / "other")
        assert missing.returncode == 2
        assert "the hub has no such data set" in missing.stderr


@pytest.mark.slow
def test_without_network_it_fails_in_seconds_and_says_what_to_do(tmp_path: Path) -> None:
    start = time.monotonic()
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{refusing.getsockname()[1]}"
        done = command(address, tmp_path / "home", "multi30k", tmp_path / "out")
    assert time.monotonic() - start < 20
    assert done.returncode == 2
    assert "the Hugging Face hub cannot be reached" in done.stderr
    assert "by --mirror" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
