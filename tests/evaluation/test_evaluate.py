"""Test sets, runs scored on them, and translations that are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.small_runs import SOURCE_LINES, TARGET_LINES, random_translator, write_run
from translate.decoding.translator import Translator
from translate.errors import DataError, RunError
from translate.evaluation import translation_cache
from translate.evaluation.evaluate import (
    evaluate_lines,
    keep_translations,
    read_pairs,
    read_test_set,
    run_split_files,
)
from translate.evaluation.metrics import evaluate, quick_scores
from translate.evaluation.translation_cache import CachedTranslations, translate_cached

# -- test sets --------------------------------------------------------------------------------------------------------


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_a_test_set_has_all_references_and_the_number_of_each_line(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", ["a b", "a", "a b c"])
    first, second = write_lines(tmp_path / "one", ["1", "2", "3"]), write_lines(tmp_path / "two", ["I", "II", "III"])
    everything = (["a b", "a", "a b c"], [["1", "2", "3"], ["I", "II", "III"]], [1, 2, 3])
    assert read_test_set(source, [first, second]) == everything
    assert read_test_set(source, [first, second], min_words=1) == everything
    assert read_test_set(source, [first, second], min_words=2) == (["a b", "a b c"], [["1", "3"], ["I", "III"]], [1, 3])
    blank = write_lines(tmp_path / "blank", ["a b", "", "a"])
    assert read_pairs(blank, first) == (["a b", "", "a"], ["1", "2", "3"]), (
        "an empty line counts unless words are asked for"
    )
    assert read_test_set(blank, [first]) == (["a b", "", "a"], [["1", "2", "3"]], [1, 2, 3])
    assert read_pairs(source, first, min_words=3) == (["a b c"], ["3"])
    with pytest.raises(DataError, match="no sentence of at least 4 words"):
        read_test_set(source, [first], min_words=4)
    short = write_lines(tmp_path / "short", ["1", "2"])
    with pytest.raises(DataError, match=r"source has 3 lines, .*short 2: line N"):
        read_test_set(source, [first, short])
    empty = write_lines(tmp_path / "empty", [])
    with pytest.raises(DataError, match="have no sentence: there is nothing to score"):
        read_test_set(empty, [empty])


def test_a_run_has_test_data_of_its_own(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert run_split_files(run, "test") == (run / "data" / "test.source", run / "data" / "test.target")
    with pytest.raises(DataError, match=r"no 'valid' data .*a split it has: test\."):
        run_split_files(run, "valid")
    for name in ("source", "target"):
        path = run / "data" / f"test.{name}"
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DataError, match="no 'test' data"):
            run_split_files(run, "test")
        path.write_bytes(content)


# -- scores of translations -------------------------------------------------------------------------------------------


def test_lines_are_translated_and_scored(tmp_path: Path) -> None:
    translator = random_translator()
    found, hypotheses = evaluate_lines(translator, SOURCE_LINES, TARGET_LINES)
    assert hypotheses == [best[0].text for best in translator.translate(SOURCE_LINES)]
    wanted = evaluate(hypotheses, TARGET_LINES, found.seconds)
    assert found.as_json() == wanted.as_json()
    assert set(found.as_json()) == {"bleu", "chrf", "chrf++", "ter", "sentences", "seconds"}
    assert found.sentences == 3
    assert found.seconds > 0
    with pytest.raises(DataError, match="3 translations, 2 references"):
        evaluate_lines(translator, SOURCE_LINES, TARGET_LINES[:2])
    run = write_run(tmp_path / "run")
    translator = Translator.load(run)
    scores, first = evaluate_lines(translator, SOURCE_LINES, TARGET_LINES, run=run)
    again, second = evaluate_lines(translator, SOURCE_LINES, TARGET_LINES, run=run)
    assert (second, again.seconds) == (first, scores.seconds), "the kept ones, and the time that they took"
    kept = next((run / "translations" / "kept").iterdir())
    before = kept.stat().st_mtime_ns
    evaluate_lines(translator, SOURCE_LINES, TARGET_LINES, run=run, fresh=True)
    assert kept.stat().st_mtime_ns > before
    keep_translations(run, "test", first, scores)
    assert (run / "translations" / "test.txt").read_text() == "".join(line + "\n" for line in first)
    assert json.loads((run / "translations" / "test.json").read_text()) == scores.as_json()


def test_translations_are_kept_in_a_folder_of_their_own(tmp_path: Path) -> None:
    for _ in range(2):
        keep_translations(tmp_path, "valid", ["un", "deux"], evaluate(["un"], ["un"], 1.0))
    assert (tmp_path / "translations" / "valid.txt").read_text() == "un\ndeux\n"


def test_translations_that_cannot_be_kept_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "translations").write_text("in the way")
    with pytest.raises(RunError, match=r"translations: cannot be made"):
        keep_translations(tmp_path, "test", ["a"], evaluate(["a"], ["a"], 1.0))


def test_quick_scores_are_the_whole_ones() -> None:
    lines = ["le petit chien dort", "un homme voit", "12 chats"]
    scores = evaluate(lines, TARGET_LINES, 1.0)
    quick = quick_scores(lines, TARGET_LINES, "fr")
    assert set(quick) == {"bleu", "chrf"}
    assert quick["chrf"] == pytest.approx(scores.chrf.score, abs=1e-4)
    assert quick["bleu"] == pytest.approx(scores.bleu.score, abs=1e-4)
    with pytest.raises(DataError, match="2 translations, 3 references"):
        quick_scores(lines[:2], TARGET_LINES)


def test_one_sentence_has_no_interval_and_intervals_stay_on_the_scale() -> None:
    (one,) = (evaluate(["le petit chat dort"], ["le petit chien dort"], 1.2345),)
    assert one.seconds == 1.234 or one.seconds == 1.235
    for score in (one.bleu, one.chrf, one.ter):
        assert score.low == score.score == score.high
    many = evaluate(["a b c d"] * 6 + ["x y z w q r s t u v"] * 2, ["a b c d"] * 8, 1.0)
    for score in (many.bleu, many.chrf):
        assert 0 <= score.low < score.score < score.high <= 100
    sure = evaluate([*["a b c d e"] * 79, "a b c d x"], ["a b c d e"] * 80, 1.0).chrf
    assert 0 < sure.score - sure.low < 1, "a small interval is one too"
    worst = evaluate(["x y z w q r s t u v", "a"] * 6, ["a"] * 12, 1.0).ter
    assert worst.high > 100, "TER has no upper end"


# -- what is kept -----------------------------------------------------------------------------------------------------


def kept_files(run: Path) -> list[Path]:
    return sorted((run / "translations" / "kept").glob("*"))


def check_same(one: CachedTranslations, other: CachedTranslations) -> None:
    for left, right in zip(one.translations, other.translations, strict=True):
        assert (left.text, left.src_ids, left.tgt_ids) == (right.text, right.src_ids, right.tgt_ids)
        assert (left.score, left.log_prob) == (right.score, right.log_prob)
        assert (left.attention is None) == (right.attention is None)
        if left.attention is not None:
            np.testing.assert_array_equal(left.attention, right.attention)


@pytest.mark.parametrize("decoder", ["bahdanau", "plain"])
def test_nothing_is_translated_twice(tmp_path: Path, decoder: str) -> None:
    run = write_run(tmp_path / "run", decoder=decoder)
    translator, lines = Translator.load(run), [*SOURCE_LINES, ""]
    first, second = translate_cached(run, translator, lines), translate_cached(run, translator, lines)
    assert (first.before, second.before) == (False, True)
    assert second.seconds == first.seconds > 0
    check_same(first, second)
    assert [one.text for one in first.translations] == [best[0].text for best in translator.translate(lines)]
    assert len(kept_files(run)) == 1
    assert not translate_cached(run, translator, lines, fresh=True).before
    assert translate_cached(run, translator, lines, first_line=9).before, "a search does not ask for the line's number"


def test_all_that_decides_a_translation_is_in_its_name(tmp_path: Path) -> None:
    run, other = write_run(tmp_path / "run"), write_run(tmp_path / "other", seed=2)
    translator = Translator.load(run)

    def is_kept(run: Path = run, lines: list[str] = SOURCE_LINES, first_line: int = 1, **search: Any) -> bool:
        asked = Translator.load(run)
        asked.search = translator.search.model_copy(update=search)
        return translate_cached(run, asked, lines, first_line=first_line).before

    assert not is_kept()
    assert is_kept()
    assert not is_kept(beam=1)
    assert not is_kept(lines=SOURCE_LINES[:2])
    assert not is_kept(lines=[SOURCE_LINES[1], SOURCE_LINES[0], SOURCE_LINES[2]])
    assert not is_kept(sample=True)
    assert is_kept(sample=True)
    sampling = Translator.load(run)
    sampling.search = sampling.search.model_copy(update={"sample": True})
    assert translate_cached(run, sampling, SOURCE_LINES).before, "the first line is line 1"
    assert not is_kept(sample=True, first_line=2), "draws go by the number of the line"
    kept = {path.name for path in kept_files(run)}
    assert not is_kept(run=other)
    assert kept.isdisjoint(path.name for path in kept_files(other)), "other weights, other names"
    config = run / "config.toml"
    config.write_text(config.read_text() + "\n")
    assert not is_kept()


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    translator = Translator.load(run)
    first = translate_cached(run, translator, SOURCE_LINES)
    (path,) = kept_files(run)
    whole = path.read_bytes()
    with np.load(path) as arrays:
        about, weights = arrays["about"], arrays["weights"]
    for damage in ("cut", "fewer weights", "more weights", "fewer lines"):
        if damage == "cut":
            path.write_bytes(whole[: len(whole) // 2])
        else:
            rest = json.loads(about.tobytes().decode())
            if damage == "fewer lines":
                rest["translations"] = rest["translations"][:-1]
                rest["attention"] = False
            changed = {"fewer weights": weights[:-1], "more weights": np.append(weights, weights[:1])}
            text = np.frombuffer(json.dumps(rest).encode(), np.uint8)
            none = np.zeros(0, np.float32)
            np.savez_compressed(path, about=text, weights=changed.get(damage, none).astype(np.float32))
        again = translate_cached(run, translator, SOURCE_LINES)
        assert not again.before, damage
        check_same(first, again)
        assert translate_cached(run, translator, SOURCE_LINES).before


def test_only_the_newest_files_and_small_inputs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run")
    translator = Translator.load(run)
    monkeypatch.setattr(translation_cache, "MOST_FILES", 2)
    names = []
    for number, line in enumerate(("the dog", "a man", "cats", "a bird")):
        before = set(kept_files(run))
        translate_cached(run, translator, [line])
        (new,) = set(kept_files(run)) - before
        os.utime(new, (number, number))
        names.append(new)
    # The newest is written with the time of now, so that it always stays.
    assert set(kept_files(run)) == set(names[-2:])
    monkeypatch.setattr(translation_cache, "MOST_LINES", 2)
    for count, kept in ((2, True), (3, False)):
        translate_cached(run, translator, SOURCE_LINES[:count])
        assert translate_cached(run, translator, SOURCE_LINES[:count]).before == kept


def test_a_run_that_may_only_be_read_is_translated_with_a_warning(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "translations").write_text("in the way")
    with pytest.warns(UserWarning, match="the translations are not kept"):
        found = translate_cached(run, Translator.load(run), SOURCE_LINES)
    assert len(found.translations) == 3
    assert not found.before
