"""Pairs stay pairs, whatever the files contain and whichever form they have."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from translate.config import DataConfig
from translate.errors import DataError
from translate.text.corpus import BREAKS, Pair, find_corpus, parallel_files, read_lines, tidy

DIRTY = [
    Pair("carriage\rreturn", "retour\rchariot"),
    Pair("line\u2028separator", "paragraph\u2029separator"),
    Pair("next\x85line", "form\x0cfeed"),
    Pair('"leading quote', 'an "inner" quote"'),
    Pair("\x00nul", "vertical\x0btab and \x1c\x1d\x1e"),
    Pair("\ufeff not a mark here", "no-break\u00a0space\u3000"),
    Pair("", "empty source"),
    Pair("😀", "नमस्ते"),
]
# A line of text: no newline, and no carriage return at its end, which would be taken for a line end of the other kind.
LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])).map(lambda line: line.rstrip("\r"))


def data_config(
    folder: Path | str, source_lang: str = "en", target_lang: str = "fr", train: str = "train"
) -> DataConfig:
    return DataConfig(folder=str(folder), source_lang=source_lang, target_lang=target_lang, train=train)


def write_plain(folder: Path, pairs: list[Pair], end: str = "\n") -> None:
    for side, language in enumerate(("en", "fr")):
        (folder / f"train.{language}").write_bytes("".join(pair[side] + end for pair in pairs).encode())


def write_tsv(folder: Path, pairs: list[Pair]) -> None:
    (folder / "train.tsv").write_bytes("".join(f"{src}\t{tgt}\tCC-BY\n" for src, tgt in pairs).encode())


def write_jsonl(folder: Path, pairs: list[Pair]) -> None:
    rows = [json.dumps({"id": 7, "fr": tgt, "en": src}, ensure_ascii=False) for src, tgt in pairs]
    (folder / "train.jsonl").write_bytes("\r\n".join(rows).encode())


def write_nested_jsonl(folder: Path, pairs: list[Pair]) -> None:
    rows = [json.dumps({"translation": {"en": src, "fr": tgt}}) for src, tgt in pairs]
    (folder / "train.jsonl").write_bytes("\n".join(rows).encode())


def write_parquet(folder: Path, pairs: list[Pair]) -> None:
    table = pa.table(
        {"fr": [pair.target for pair in pairs], "en": [pair.source for pair in pairs], "id": range(len(pairs))}
    )
    pq.write_table(table, folder / "train.parquet", row_group_size=3)


def write_nested_parquet(folder: Path, pairs: list[Pair]) -> None:
    table = pa.table({"translation": [{"en": src, "fr": tgt} for src, tgt in pairs]})
    pq.write_table(table, folder / "train.parquet")


WRITERS = [write_plain, write_tsv, write_jsonl, write_nested_jsonl, write_parquet, write_nested_parquet]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_form_gives_the_same_pairs(tmp_path: Path, write: Callable[[Path, list[Pair]], None]) -> None:
    write(tmp_path, DIRTY)
    assert list(find_corpus(data_config(tmp_path), "train").pairs()) == DIRTY


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_nested_parquet], ids=lambda write: write.__name__)
def test_a_hub_shaped_folder_gives_the_same_pairs(
    tmp_path: Path, write: Callable[[Path, list[Pair]], None], capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, DIRTY)
    corpus = find_corpus(data_config(f"hub:{tmp_path}"), "train")
    assert list(corpus.pairs()) == DIRTY
    assert corpus.files == ()
    assert len(corpus.fingerprint()) == 64
    assert capfd.readouterr() == ("", "")


def test_a_hub_configuration_is_chosen_by_the_languages(tmp_path: Path) -> None:
    for name in ("de-en", "fr-en"):
        (tmp_path / name).mkdir()
        row = {"translation": {"en": name, "fr": "x", "de": "x"}}
        (tmp_path / name / "train.jsonl").write_text(json.dumps(row) + "\n")
    entries = "".join(f"- config_name: {name}\n  data_files: {name}/train.jsonl\n" for name in ("de-en", "fr-en"))
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{entries}---\n")
    assert list(find_corpus(data_config(f"hub:{tmp_path}"), "train").pairs()) == [Pair("fr-en", "x")]


def test_an_unknown_split_or_broken_row_of_a_hub_folder_is_the_users_mistake(tmp_path: Path) -> None:
    write_jsonl(tmp_path, DIRTY)
    with pytest.raises(DataError, match=r"Available splits: \['train'\]"):
        list(find_corpus(data_config(f"hub:{tmp_path}", train="dev"), "train").pairs())
    (tmp_path / "train.jsonl").write_text('{"en": "a", "fr": \n')
    with pytest.raises(DataError, match=r"row 1: cannot be read"):
        list(find_corpus(data_config(f"hub:{tmp_path}"), "train").pairs())
    with pytest.raises(DataError, match="neither a folder here nor a name"):
        list(find_corpus(data_config("hub:no such name!"), "train").pairs())


def fail_to_reach_the_hub(endpoint: str) -> float:
    code = (
        "from translate.config import DataConfig\n"
        "from translate.errors import DataError\n"
        "from translate.text.corpus import find_corpus\n"
        "data = DataConfig(folder='hub:owner/name', source_lang='en', target_lang='fr')\n"
        "try:\n    list(find_corpus(data, 'train').pairs())\n"
        "except DataError as error:\n    print(error)\n"
    )
    start = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "hub:owner/name (train): the Hugging Face hub cannot be reached" in done.stdout
    assert done.stderr == ""
    return time.monotonic() - start


def test_no_network_fails_in_seconds() -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        assert fail_to_reach_the_hub(f"http://127.0.0.1:{refusing.getsockname()[1]}") < 15


def test_a_silent_network_fails_in_seconds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never answers
        assert fail_to_reach_the_hub(f"http://127.0.0.1:{silent.getsockname()[1]}") < 20


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.builds(Pair, LINES, LINES), max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_any_text_stays_aligned_in_plain_files(tmp_path: Path, pairs: list[Pair], end: str, mark: bytes) -> None:
    if pairs and not mark and any(side.startswith("\ufeff") for side in pairs[0]):
        return  # such a first line is a byte-order mark
    write_plain(tmp_path, pairs, end)
    if pairs:
        (tmp_path / "train.en").write_bytes(mark + (tmp_path / "train.en").read_bytes())
    corpus = find_corpus(data_config(tmp_path), "train")
    assert list(corpus.pairs()) == pairs
    assert list(find_corpus(data_config(tmp_path, "fr", "en"), "train").pairs()) == [
        Pair(tgt, src) for src, tgt in pairs
    ]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\nb\rc\n", ["a\r", "b\rc"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_lines_end_at_newline_bytes_only(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    (tmp_path / "file").write_bytes(content)
    assert list(read_lines(tmp_path / "file")) == lines


def test_invalid_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.fr"
    path.write_bytes("bien sûr\n".encode() + "é".encode() + "tait\xe9".encode("latin-1") + b"\n")
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}:2: not valid UTF-8 (byte 0xe9 at column 6). ")


@pytest.mark.parametrize(("num_en", "num_fr"), [(3, 2), (2, 7), (0, 1)])
def test_unequal_sides_are_refused_with_both_counts(tmp_path: Path, num_en: int, num_fr: int) -> None:
    (tmp_path / "mine.en").write_text("x\n" * num_en)
    (tmp_path / "mine.fr").write_text("y\n" * num_fr)
    with pytest.raises(DataError) as caught:
        list(parallel_files(tmp_path / "mine.en", tmp_path / "mine.fr").pairs())
    wanted = f"mine.en has {num_en} lines, mine.fr {num_fr}: line N of each must be a translation of the other."
    assert str(caught.value) == f"{wanted} `translate data check` shows where they diverge."


def test_a_short_tsv_row_is_a_pair_with_an_empty_side(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b'\xef\xbb\xbfa\tA\r\nalone\r\n\r\n"b\t"B\tmore"\r\n')
    pairs = list(find_corpus(data_config(tmp_path), "train").pairs())
    assert pairs == [Pair("a", "A"), Pair("alone", ""), Pair("", ""), Pair('"b', '"B')]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"en": "a"', r"train.jsonl:2: not valid JSON"),
        ("[" * 100_000, r"train.jsonl:2: not valid JSON"),
        ('["a", "b"]', r"train.jsonl:2: an object with the columns en \+ fr is needed"),
        ("", r"train.jsonl:2: not valid JSON"),
        ('{"en": "a", "de": "b"}', r"train.jsonl:2: no column 'fr'; there are: en \+ de\."),
        ('{"translation": {"en": "a", "de": "b"}}', r"train.jsonl:2: no column 'fr'; there are: en \+ de\."),
        ('{"en": "a", "fr": 3}', r"train.jsonl:2: column 'fr' holds 3, which is not text"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.jsonl").write_text('{"en": "a", "fr": null}\n' + line + "\n")
    pairs = find_corpus(data_config(tmp_path), "train").pairs()
    assert next(pairs) == Pair("a", "")
    with pytest.raises(DataError, match=message):
        next(pairs)


def test_parquet_without_the_column_or_damaged_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path, DIRTY)
    for languages in (("en", "de"), ("nl", "de")):
        with pytest.raises(DataError, match=r"no column '(de|nl)'; there are: fr \+ en \+ id\."):
            list(find_corpus(data_config(tmp_path, *languages), "train").pairs())
    (tmp_path / "train.parquet").write_bytes(b"PAR1 this is not Parquet")
    with pytest.raises(DataError, match=r"train\.parquet: cannot be read as Parquet"):
        list(find_corpus(data_config(tmp_path), "train").pairs())


def test_two_kinds_at_once_are_refused(tmp_path: Path) -> None:
    write_plain(tmp_path, DIRTY)
    write_jsonl(tmp_path, DIRTY)
    with pytest.raises(DataError, match=r"more than one corpus: train\.en \+ train\.fr; train\.jsonl\."):
        find_corpus(data_config(tmp_path), "train")


@pytest.mark.parametrize(
    ("stem", "language", "hint"),
    [
        ("trian", "fr", "Did you mean 'train.en' for 'trian.en' and 'train.fr' for 'trian.fr'?"),
        ("train", "fra", "Did you mean 'train.fr' for 'train.fra'?"),
        ("zzz", "qq", "found: train.en, train.fr."),
    ],
)
def test_a_missing_corpus_tells_what_is_there(tmp_path: Path, stem: str, language: str, hint: str) -> None:
    write_plain(tmp_path, DIRTY)
    with pytest.raises(DataError) as caught:
        find_corpus(data_config(tmp_path, "en", language, stem), "train")
    message = str(caught.value)
    assert f"looked for {stem}.en + {stem}.{language}, {stem}.tsv, {stem}.jsonl, {stem}.parquet" in message
    assert message.endswith(hint)


def test_a_missing_folder_or_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        find_corpus(data_config(tmp_path / "none"), "train")
    with pytest.raises(DataError, match=r"none\.en: no such file"):
        list(parallel_files(tmp_path / "none.en", tmp_path / "none.fr").pairs())


def test_the_fingerprint_follows_content_and_sides(tmp_path: Path) -> None:
    write_plain(tmp_path, DIRTY)
    corpus = find_corpus(data_config(tmp_path), "train")
    assert corpus.files == (tmp_path / "train.en", tmp_path / "train.fr")
    prints = {corpus.fingerprint(), find_corpus(data_config(tmp_path, "fr", "en"), "train").fingerprint()}
    assert corpus.fingerprint() in prints
    with (tmp_path / "train.fr").open("ab") as file:
        file.write(b" ")
    prints.add(corpus.fingerprint())
    assert len(prints) == 3


@settings(deadline=None)
@given(st.text())
def test_tidy_keeps_offsets_and_leaves_one_line(text: str) -> None:
    clean = tidy(text)
    assert len(clean) == len(text)
    assert all(before == after or after == " " for before, after in zip(text, clean, strict=True))
    assert len(f"{clean}x".splitlines()) == 1
    clean.encode()


def test_tidy_replaces_controls_and_keeps_spaces_of_other_scripts() -> None:
    assert tidy("a\tb\r\n\x0c\x00\x7f\x85\u2028\u2029\ufeff\ud800c") == "a b" + " " * 10 + "c"
    assert tidy("a\u00a0b\u3000c\u200d") == "a\u00a0b\u3000c\u200d"
    assert set(tidy(BREAKS)) == {" "}
