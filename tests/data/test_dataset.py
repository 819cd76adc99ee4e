"""Prepared pairs are the corpus's pairs, read back from the disk without copies."""

import itertools
import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from translate.config import DataConfig, TokenizerConfig
from translate.data.dataset import PairDataset, _in_order, content_key, prepare
from translate.errors import DataError, RunError
from translate.text.corpus import Corpus, Pair, find_corpus
from translate.text.tokenizer import Tokenizer, train_tokenizer

PAIRS = [
    Pair("one two three", "un deux trois"),
    Pair("", "vide"),
    Pair("four\u2028five", "quatre\x85cinq"),
    Pair("six seven " * 60, "six"),
    Pair("\t", "\x0c"),
    Pair("eight 😀", '"huit'),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = list(itertools.chain.from_iterable(PAIRS * 20))
    return Tokenizer(train_tokenizer(lines, TokenizerConfig(vocabulary=300), 1, lambda _: None))


def data_config(folder: Path | str, max_length: int = 40, max_ratio: float = 0.0) -> DataConfig:
    return DataConfig(
        folder=str(folder), source_lang="en", target_lang="fr", max_length=max_length, max_ratio=max_ratio
    )


def corpus_of(pairs: list[Pair]) -> Corpus:
    return Corpus("memory", (), lambda: iter(pairs))


def read_all(dataset: PairDataset) -> list[tuple[list[int], list[int]]]:
    return [(src.tolist(), tgt.tolist()) for src, tgt in (dataset[index] for index in range(len(dataset)))]


def test_kept_pairs_come_back_with_their_line_numbers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "train.arrow"
    report = prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), path)
    dataset = PairDataset(path)
    assert (report.total, report.kept) == (6, 3)
    assert report.left_out == {"empty side": 2, "too long": 1, "length ratio": 0}
    assert dataset.lines.tolist() == [1, 3, 6]
    wanted = [
        (tokenizer.encode(PAIRS[line - 1].source), tokenizer.encode(PAIRS[line - 1].target)) for line in (1, 3, 6)
    ]
    assert read_all(dataset) == wanted
    assert dataset.src_lengths.tolist() == [len(src) + 1 for src, _ in wanted]
    assert dataset.tgt_lengths.tolist() == [len(tgt) + 1 for _, tgt in wanted]
    assert {dataset.src_lengths.dtype, dataset.tgt_lengths.dtype} == {np.dtype(np.int32)}
    assert [file.name for file in tmp_path.iterdir()] == ["train.arrow"]


def test_sides_keep_their_own_tokenizers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = Tokenizer(train_tokenizer(["un deux"] * 9, TokenizerConfig(vocabulary=300, kind="bpe"), 1, lambda _: None))
    prepare(corpus_of(PAIRS[:1]), tokenizer, other, data_config("."), tmp_path / "x")
    assert read_all(PairDataset(tmp_path / "x")) == [(tokenizer.encode("one two three"), other.encode("un deux trois"))]


def test_the_ratio_counts_both_ways(tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [Pair("one two three one two three", "un"), Pair("one", "un deux trois un deux trois"), PAIRS[0]]
    report = prepare(corpus_of(pairs), tokenizer, tokenizer, data_config(".", max_ratio=3.0), tmp_path / "x")
    assert report.left_out["length ratio"] == 2
    assert PairDataset(tmp_path / "x").lines.tolist() == [3]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(Pair, st.text(max_size=8), st.text(max_size=8)), max_size=12), st.integers(1, 4))
def test_chunks_do_not_show(tmp_path: Path, tokenizer: Tokenizer, pairs: list[Pair], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("translate.data.dataset._CHUNK_PAIRS", chunk)
        prepare(corpus_of(pairs), tokenizer, tokenizer, data_config("."), tmp_path / "x")
    dataset = PairDataset(tmp_path / "x")
    encoded = [(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in pairs]
    kept = [line for line, (src, tgt) in enumerate(encoded, 1) if src and tgt and max(len(src), len(tgt)) <= 40]
    assert dataset.lines.tolist() == kept
    assert read_all(dataset) == [encoded[line - 1] for line in kept]


def write_form(folder: Path, form: str, pairs: list[Pair]) -> None:
    if form == "plain":
        for side, language in enumerate(("en", "fr")):
            (folder / f"train.{language}").write_bytes("".join(pair[side] + "\r\n" for pair in pairs).encode())
    elif form == "tsv":
        (folder / "train.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), newline="")
    elif form == "jsonl":
        rows = [json.dumps({"en": src, "fr": tgt}, ensure_ascii=False) + "\n" for src, tgt in pairs]
        (folder / "train.jsonl").write_text("".join(rows), newline="")
    else:
        assert form == "parquet"
        struct = [{"en": src, "fr": tgt} for src, tgt in pairs]
        pq.write_table(pa.table({"translation": struct}), folder / "train.parquet")


@pytest.mark.parametrize("form", ["plain", "tsv", "jsonl", "parquet", "hub"])
def test_every_form_prepares_to_the_same_ids(tmp_path: Path, tokenizer: Tokenizer, form: str) -> None:
    pairs = [pair for pair in PAIRS if "\t" not in pair.source]
    write_form(tmp_path, "jsonl" if form == "hub" else form, pairs)
    data = data_config(f"hub:{tmp_path}" if form == "hub" else tmp_path)
    prepare(find_corpus(data, "train"), tokenizer, tokenizer, data, tmp_path / "form")
    prepare(corpus_of(pairs), tokenizer, tokenizer, data, tmp_path / "memory")
    form_pairs, memory_pairs = (PairDataset(tmp_path / name) for name in ("form", "memory"))
    assert len(form_pairs) == 3
    assert read_all(form_pairs) == read_all(memory_pairs)


def test_a_failure_leaves_no_file_and_the_old_one_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "train.arrow"
    prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), path)
    before = path.read_bytes()

    def broken() -> Iterator[Pair]:
        yield PAIRS[0]
        raise DataError("mine.en has 2 lines, mine.fr 1")

    with pytest.raises(DataError, match=r"mine\.en has 2 lines"):
        prepare(Corpus("broken", (), broken), tokenizer, tokenizer, data_config("."), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def num_threads() -> int:
    return sum(thread.name.startswith("prepare") for thread in threading.enumerate())


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("translate.data.dataset._CHUNK_PAIRS", 7)


@pytest.mark.usefixtures("small_chunks")
def test_the_number_of_workers_does_not_show(tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [Pair(f"{one.source} {number}", other.target) for number in range(40) for one in PAIRS for other in PAIRS]
    words = Tokenizer(train_tokenizer(["un deux trois"], TokenizerConfig(kind="word"), 1, lambda _: None))
    for target in (tokenizer, words):
        data = data_config(".", max_length=20, max_ratio=4.0)
        arguments = (corpus_of(pairs), tokenizer, target, data)
        reports = [prepare(*arguments, tmp_path / str(workers), "key", workers) for workers in (1, 3)]
        assert reports[0] == reports[1]
        assert all(reports[0].left_out.values())
        assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()
        assert PairDataset(tmp_path / "3").lines.tolist() == sorted(PairDataset(tmp_path / "3").lines.tolist())
    assert num_threads() == 0


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"good\n" * 99 + b"b\xe4d\n", r"train\.fr:100: not valid UTF-8"),
        (b"good\n" * 99, "has 100 lines, train.fr 99:"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_stays(
    tmp_path: Path, tokenizer: Tokenizer, damaged: bytes, message: str, workers: int
) -> None:
    (tmp_path / "train.en").write_bytes(b"good\n" * 100)
    (tmp_path / "train.fr").write_bytes(damaged)
    data = data_config(tmp_path)
    with pytest.raises(DataError, match=message):
        prepare(find_corpus(data, "train"), tokenizer, tokenizer, data, tmp_path / "x", workers=workers)
    assert num_threads() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.en", "train.fr"]


def test_only_so_many_chunks_are_under_way() -> None:
    asked, most = itertools.count(1), 0

    def items() -> Iterator[int]:
        nonlocal most
        for item in range(100):
            most = next(asked)
            yield item

    results = _in_order(lambda item: item * item, items(), workers=3)
    for number, result in enumerate(results):
        assert result == number * number
        assert most - number <= 6
        time.sleep(0.001 * (number < 20))  # a slow consumer is not run away from
    assert most == 100


def test_an_error_in_a_worker_reaches_the_caller_and_ends_the_others() -> None:
    with pytest.raises(ZeroDivisionError):
        list(_in_order(lambda item: 1 // (item - 30), iter(range(10**9)), workers=3))
    assert num_threads() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_neither_a_process_nor_a_file(tmp_path: Path, tokenizer: Tokenizer, number: int) -> None:
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    code = """
import itertools, sys, threading
from pathlib import Path
from translate.config import DataConfig
from translate.data.dataset import prepare
from translate.errors import Stopped
from translate.text.corpus import Corpus, Pair
from translate.text.tokenizer import Tokenizer
from translate.training.signals import StopSignals
folder = Path(sys.argv[1])
tokenizer = Tokenizer.load(folder / "t.model")
data = DataConfig(folder=".", source_lang="en", target_lang="fr")
endless = Corpus("endless", (), lambda: itertools.repeat(Pair("one two three", "un deux trois")))
try:
    with StopSignals():
        prepare(endless, tokenizer, tokenizer, data, folder / "x.arrow", workers=3)
except Stopped as stop:
    print(stop.signal_number, threading.active_count(), *(path.name for path in folder.iterdir()))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not ((tmp_path / ".tmp-x.arrow").is_file() and (tmp_path / ".tmp-x.arrow").stat().st_size):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
    assert out.split() == [str(int(number)), "1", "t.model"]
    assert said == ""


def test_a_file_that_a_killed_process_left_is_in_nobodys_way(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / ".tmp-x.arrow").write_bytes(b"half")
    prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), tmp_path / "x.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["x.arrow"]


def test_the_key_is_of_the_content_and_in_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = Tokenizer(train_tokenizer(["un deux"] * 9, TokenizerConfig(vocabulary=300, kind="bpe"), 1, lambda _: None))
    data = data_config("here")
    keys = {
        content_key("a" * 64, tokenizer, tokenizer, data),
        content_key("b" * 64, tokenizer, tokenizer, data),
        content_key("a" * 64, other, tokenizer, data),
        content_key("a" * 64, tokenizer, other, data),
        content_key("a" * 64, tokenizer, tokenizer, data_config("here", max_length=41)),
        content_key("a" * 64, tokenizer, tokenizer, data_config("here", max_ratio=2.0)),
        content_key("a" * 64, tokenizer, tokenizer, data.model_copy(update={"source_lang": "fr", "target_lang": "en"})),
    }
    assert len(keys) == 7
    key = content_key("a" * 64, tokenizer, Tokenizer(tokenizer.model), data_config("elsewhere"))
    assert key in keys
    for pairs in (PAIRS, []):
        prepare(corpus_of(pairs), tokenizer, tokenizer, data, tmp_path / "x", key)
        assert PairDataset(tmp_path / "x").key == key
    assert PairDataset.from_pairs([([5], [6])]).key == ""


def test_a_full_disk_or_missing_folder_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(RunError, match=r"none/train\.arrow: cannot be written: No such file or directory"):
        prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), tmp_path / "none" / "train.arrow")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limit[1]))  # the kernel refuses to let a file grow beyond
    try:
        with pytest.raises(RunError, match=r"train\.arrow: cannot be written: "):
            prepare(corpus_of(PAIRS * 50), tokenizer, tokenizer, data_config("."), tmp_path / "train.arrow")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(tmp_path.iterdir()) == []


def test_empty_and_damaged_files(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "train.arrow"
    report = prepare(corpus_of([]), tokenizer, tokenizer, data_config("."), path)
    dataset = PairDataset(path)
    assert (len(dataset), report.total, dataset.src_lengths.dtype) == (0, 0, np.dtype(np.int32))
    prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), path)
    whole = path.read_bytes()
    for damage in (b"", b"nothing", whole[: len(whole) // 2]):
        path.write_bytes(damage)
        with pytest.raises(RunError, match=r"train\.arrow: cannot be read as prepared pairs"):
            PairDataset(path)
    with pytest.raises(RunError, match=r"none\.arrow"):
        PairDataset(tmp_path / "none.arrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("x", pa.int32())])):
        pass
    with pytest.raises(RunError, match="other columns"):
        PairDataset(path)


def test_pairs_in_memory() -> None:
    pairs = [([5, 6], [7]), ([], [8, 9, 10]), ([11], [])]
    dataset = PairDataset.from_pairs(pairs)
    assert read_all(dataset) == pairs
    assert dataset.lines.tolist() == [1, 2, 3]
    assert len(PairDataset.from_pairs([])) == 0
    for outside in (3, -1):
        with pytest.raises(IndexError):
            dataset[outside]


def test_items_are_views_of_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    prepare(corpus_of(PAIRS), tokenizer, tokenizer, data_config("."), tmp_path / "x")
    dataset = PairDataset(tmp_path / "x")
    src, tgt = dataset[1]
    assert not src.flags.owndata
    assert not src.flags.writeable
    assert np.shares_memory(src, dataset[1][0])
    assert tgt.dtype == np.int32


@pytest.mark.parametrize(("line", "few", "many"), [("one two\n", 20_000, 250_000), ("one two " * 50_000 + "\n", 4, 20)])
def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, tokenizer: Tokenizer, line: str, few: int, many: int
) -> None:
    """Many more pairs, or lines of 100,000 words, take hardly more memory than the first chunk of them."""
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    for stem, count in (("few", few), ("many", many)):
        for language in ("en", "fr"):
            with (tmp_path / f"{stem}.{language}").open("w") as file:
                file.writelines(itertools.repeat(line, count))
    code = """
import resource, sys
from pathlib import Path
from translate.config import DataConfig
from translate.data.dataset import prepare
from translate.text.corpus import find_corpus
from translate.text.tokenizer import Tokenizer
folder = Path(sys.argv[1])
tokenizer = Tokenizer.load(folder / "t.model")
for stem in ("few", "many"):
    data = DataConfig(folder=str(folder), train=stem, source_lang="en", target_lang="fr", max_length=20)
    report = prepare(find_corpus(data, "train"), tokenizer, tokenizer, data, folder / "x", workers=2)
    print(report.total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    few_pairs, few_kilobytes, many_pairs, many_kilobytes = map(int, done.stdout.split())
    assert (few_pairs, many_pairs) == (few, many)
    assert many_kilobytes - few_kilobytes < 20_000
