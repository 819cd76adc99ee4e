"""The report on a corpus finds every planted fault on its line, and none in a clean corpus."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import DataError
from translate.text import inspection
from translate.text.clean import FAULTS, Fault, Norms, faults_of, has_mojibake, num_words, scripts_of
from translate.text.corpus import Pair, open_file, parallel_files
from translate.text.inspection import FileFacts, HeldOut, Inspection, inspect, measure, parting

DEMO = Path(__file__).parents[2] / "data" / "demo"
HELD_OUT = "the old man sees the sea"


def demo(count: int) -> list[Pair]:
    sides = [(DEMO / f"train.{ending}").read_text(encoding="utf-8").split("\n")[:count] for ending in ("en", "fr")]
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def written(folder: Path, pairs: list[Pair]) -> Inspection:
    for side, ending in enumerate(("en", "fr")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"mine.{ending}").write_bytes(text.encode())
    corpus = parallel_files(folder / "mine.en", folder / "mine.fr")
    return inspect(corpus, Norms(max_words=60), [HeldOut("test", lambda: [HELD_OUT, "never seen"])])


PLANTED: list[tuple[Pair, set[Fault]]] = [
    (Pair("", "rien à voir ici"), {"empty side"}),
    (Pair("nothing to see here", " \u00a0 "), {"empty side"}),
    (Pair("two girls play in the garden", "@@"), {"no letters", "length ratio"}),
    (Pair("!!! ??? !!! ???", "le chat mange"), {"no letters"}),
    (Pair("the dog", "le chien " * 20), {"length ratio"}),
    (Pair("a word " * 40, "un mot " * 40), {"too long"}),
    (Pair("the same on both sides", "The same on  both sides"), {"identical sides"}),
    (Pair("the white house stands there", "белый дом стоит там"), {"wrong script"}),
    (Pair("白い家がそこに立っている、見て", "la maison blanche est là"), {"wrong script"}),
    (Pair("the summer is over", "l'Ã©tÃ© est fini"), {"mojibake"}),
    (Pair("it doesnâ€™t matter", "cela n'a pas d'importance"), {"mojibake"}),
    (Pair("what could not be read", "ce qui \ufffd pas être lu"), {"mojibake"}),
    (Pair("a tab\tinside the line", "une tabulation dans la ligne"), {"control characters"}),
    (Pair("a line separator", "un séparateur\u2028de lignes"), {"control characters"}),
    (Pair("an escape here", "un échappement \x1b[31m ici"), {"control characters"}),
    (Pair(HELD_OUT, "le vieil homme voit la mer"), {"held out"}),
]


def test_a_clean_corpus_has_no_fault(tmp_path: Path) -> None:
    report = written(tmp_path, demo(2000))
    assert {fault: finding.count for fault, finding in report.findings.items()} == dict.fromkeys(FAULTS, 0)
    assert report.pairs == 2000
    assert [(part.sentences, part.in_training) for part in report.overlap] == [(2, 0)]
    assert all(facts.final_newline and not facts.byte_order_mark and not facts.crlf_lines for facts in report.files)


def test_every_planted_fault_is_found_on_its_line(tmp_path: Path) -> None:
    pairs = demo(600)
    wanted: dict[Fault, set[int]] = {fault: set() for fault in FAULTS}
    for place, (pair, faults) in enumerate(PLANTED):
        line = 30 * (place + 1)
        pairs[line - 1] = pair
        for fault in faults:
            wanted[fault].add(line)
    pairs[597] = Pair(pairs[10].source + " ", pairs[10].target)
    wanted["duplicate"] = {598}
    assert all(wanted.values()), "a fault that nothing plants is not tested"
    report = written(tmp_path, pairs)
    assert {fault: set(finding.lines) for fault, finding in report.findings.items()} == wanted
    assert {fault: finding.count for fault, finding in report.findings.items()} == {
        f: len(w) for f, w in wanted.items()
    }
    assert report.overlap[0].in_training == 1
    planted = set.union(*wanted.values())
    assert {pair.line for pair in report.strangest} <= planted
    tree = json.loads(json.dumps(report.as_json()))
    assert tree["findings"]["wrong_script"] == {"count": 2, "lines": sorted(wanted["wrong script"])}
    assert len(tree["strangest"]) == 10


def test_what_reading_hides_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_bytes(b"\xef\xbb\xbfone\tun\r\ntwo\tdeux\r\nthree\r\nfour\tquatre")
    report = inspect(open_file(path, "en", "fr"), Norms())
    [facts] = report.files
    assert (facts.lines, facts.crlf_lines, facts.byte_order_mark, facts.final_newline) == (4, 3, True, False)
    assert facts.first_ragged == [3]
    assert report.findings["empty side"].lines == [3]
    assert report.findings["control characters"].count == 0


def test_a_parquet_file_has_no_lines_that_could_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"translation": [{"en": "one", "fr": "un"}]}), path)
    report = inspect(open_file(path, "en", "fr"), Norms())
    assert (report.pairs, report.files) == (1, [FileFacts(str(path), 0, False, 0, True)])


def test_an_empty_corpus_has_a_report(tmp_path: Path) -> None:
    report = written(tmp_path, [])
    assert report.pairs == 0
    assert report.strangest == []


def test_unequal_files_are_refused_with_the_place(tmp_path: Path) -> None:
    pairs = demo(400)
    (tmp_path / "a.en").write_text("".join(pair.source + "\n" for pair in pairs))
    (tmp_path / "a.fr").write_text("".join(pair.target + "\n" for line, pair in enumerate(pairs, 1) if line != 250))
    with pytest.raises(DataError, match=r"a\.en has 400 lines, .*a\.fr 399.* diverge near line (24\d|25\d):"):
        inspect(parallel_files(tmp_path / "a.en", tmp_path / "a.fr"), Norms())


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 5))
def test_the_parting_is_a_line(lengths: list[int], gap: int, missing: int) -> None:
    longer = np.array(lengths[:gap] + [77] * missing + lengths[gap:], np.float64)
    shorter = np.array(lengths, np.float64)
    assert 1 <= parting(shorter, longer) <= len(lengths) + 1
    assert parting(shorter, longer) == parting(longer, shorter)


@pytest.mark.parametrize("text", ["Ã¼ber", "donâ€™t", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "ðŸ˜€", "ä½\xa0å¥½", "Â£5", "caf\ufffd"])
def test_mojibake_is_seen(text: str) -> None:
    assert has_mojibake(text)


@pytest.mark.parametrize(
    "text",
    [
        "über",
        "CAFÉ…",
        "déjà\u00a0« vu »",
        "il va à\u00a0«",
        "MANHÃ”",
        "Ça va ? — Oui…",
        "VOILÀ »",
        "Tiếng Việt",
        "ÉTÉ”",
    ],
)
def test_text_as_people_write_it_is_no_mojibake(text: str) -> None:
    assert not has_mojibake(text)


@given(st.text(st.characters(categories=("Ll", "Lo"), min_codepoint=0xC0, max_codepoint=0x2FFF), min_size=4))
def test_text_read_in_the_wrong_encoding_is_mojibake(text: str) -> None:
    assert has_mojibake(text.encode().decode("latin-1"))


def test_words_and_scripts() -> None:
    assert num_words("two words") == 2
    assert num_words("我有 a dog") == 4
    assert scripts_of("дом house 家かな") == {"CYRILLIC": 3, "LATIN": 5, "HAN": 3}
    norms = Norms(scripts=(frozenset({"LATIN"}), frozenset({"HAN"})))
    assert faults_of(Pair("I use Twitter.", "我用Twitter。"), norms) == []
    assert faults_of(Pair("I use Twitter.", "I do use it."), norms) == ["wrong script"]


def report_of(folder: Path, pairs: list[Pair], limits: Norms | None = None) -> Inspection:
    for side, ending in enumerate(("en", "fr")):
        (folder / f"own.{ending}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return inspect(parallel_files(folder / "own.en", folder / "own.fr"), limits or Norms())


def test_the_numbers_of_a_corpus_counted_by_hand(tmp_path: Path) -> None:
    pairs = [
        Pair("ab cd", "abcd\u00a0efgh"),
        Pair("a", "xy"),
        Pair("", "z"),
        Pair("ab cd ef gh ij", " дома  "),
        Pair("a", "zzz"),
    ]
    report = report_of(tmp_path, pairs)
    src, tgt = report.source, report.target
    assert (src.words, src.characters, src.longest_words) == (2 + 1 + 0 + 5 + 1, 5 + 1 + 0 + 14 + 1, 5)
    assert (src.mean_words, src.median_words) == (1.8, 1.0)
    assert (tgt.words, tgt.characters, tgt.longest_words) == (2 + 1 + 1 + 1 + 1, 9 + 2 + 1 + 4 + 3, 2)
    assert (src.odd_space_lines, tgt.odd_space_lines) == (0, 1)
    assert src.scripts == {"LATIN": 1.0}
    assert tgt.scripts == {"LATIN": pytest.approx(14 / 18, abs=1e-6), "CYRILLIC": pytest.approx(4 / 18, abs=1e-6)}
    assert all(share == round(share, 6) for share in tgt.scripts.values())
    assert report.ratio == pytest.approx((9 / 5 + 2) / 2), "the median of 9/5, 2, 4/14 and 3; an empty side has none"
    assert report.repeated_sources == 1
    assert (report.max_words, report.max_ratio) == (250, 3.0)
    words = report.histograms["source words"]
    assert (words.edges, words.counts) == ([float(edge) for edge in range(13)], [1, 2, 1, 0, 0, 1] + [0] * 7)
    ratio = report.histograms["length ratio"]
    scale = report.ratio
    for edge in ratio.edges[1:]:
        assert any(edge * other == pytest.approx(1, abs=0.011) for other in ratio.edges), "half as long is as twice"
    shares = [9 / 5 / scale, 2 / scale, 4 / 14 / scale, 3 / scale]
    assert ratio.counts == np.histogram(shares, [*ratio.edges, np.inf])[0].tolist()


def test_wide_texts_have_wide_bins(tmp_path: Path) -> None:
    for longest, width in ((12, 1), (13, 2), (24, 2), (25, 5), (121, 20)):
        edges = report_of(tmp_path, [Pair("a " * longest, "b")] * 200).histograms["target words"].edges
        assert edges == [width * place for place in range(13)]


def test_a_script_belongs_to_a_side_from_a_twentieth_on(tmp_path: Path) -> None:
    def scripts(cyrillic: int) -> frozenset[str]:
        (tmp_path / "a").write_text("a" * (100 - cyrillic) + "д" * cyrillic + "\n")
        (tmp_path / "b").write_text("b\n")
        return measure(parallel_files(tmp_path / "a", tmp_path / "b"), Norms()).norms.scripts[0]

    assert scripts(5) == {"LATIN", "CYRILLIC"}
    assert scripts(4) == {"LATIN"}


def test_the_strangest_pairs_come_first(tmp_path: Path) -> None:
    pairs = [Pair("the small dog", "le petit chien")] * 1
    pairs += [Pair(f"the dog number {number}", f"le chien numéro {number}") for number in range(100, 120)]
    pairs += [Pair("", "vide"), Pair("the dog !?!?!?!?", "le chien !?!?!?!?"), Pair("the dog", "le chien " * 9)]
    found = report_of(tmp_path, pairs).strangest
    assert len(found) == 10
    # Faults count one each, beside the logarithm of the lengths' ratio and the share of signs.
    assert [one.line for one in found[:3]] == [24, 22, 23]
    assert found[0].faults == ["length ratio"]
    assert found[1].score == 1.0
    assert found[2].score == pytest.approx(8 / 16, abs=0.06)
    assert (found[2].source, found[2].target) == ("the dog !?!?!?!?", "le chien !?!?!?!?")
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("content", "lines", "crlf", "mark", "final"),
    [
        (b"", 0, 0, False, True),
        (b"a\nb\n", 2, 0, False, True),
        (b"a\r\nb\r\nc", 3, 2, False, False),
        (b"\xef\xbb\xbfa\r\n", 1, 1, True, True),
        (b"a\r", 1, 0, False, False),
        (b"a\r\r\n\n", 2, 1, False, True),
    ],
)
def test_a_file_is_read_in_blocks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    lines: int,
    crlf: int,
    mark: bool,
    final: bool,
    block: int,
) -> None:
    if block < 3 and mark:
        pytest.skip("the mark is longer than such a block")
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    monkeypatch.setattr(inspection, "_BLOCK", block)
    assert inspection._file_facts(path) == FileFacts(str(path), lines, mark, crlf, final)


def test_where_two_sides_part() -> None:
    lengths = np.array([5, 90, 8, 60, 30, 7, 120, 15, 44, 9], np.float64)
    for missing in range(10):
        found = parting(np.delete(lengths, missing), lengths)
        assert found == missing + 1
    assert parting(np.zeros(0), lengths) == 1


def test_sides_of_one_length_go_together_where_nothing_is_known() -> None:
    pair = Pair("a" * 90, "b" * 90)
    assert faults_of(pair, Norms(max_ratio=1.01)) == []
    assert faults_of(Pair("a" * 90, "b" * 92), Norms(max_ratio=1.01)) == ["length ratio"], "102 to 100"
