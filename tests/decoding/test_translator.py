"""Text in, text out: what is read, how lines are batched, forced translations, and ensembles."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.decoding.decoding_models import divided, force_all
from tests.small_runs import SOURCE_LINES, TARGET_LINES, random_translator, word_tokenizers, write_run
from translate.config import SearchConfig
from translate.decoding.beam import beam_search
from translate.decoding.ensemble import Ensemble
from translate.decoding.sampling import sample
from translate.decoding.translator import MOST_ELEMENTS, Translation, Translator, batch_rows
from translate.errors import ConfigError, RunError
from translate.text.tokenizer import EOS, UNK

SOURCES = ["the dog sleeps", "a man sees the small house", "", "cats", "the bird", "12 cats hear the man sees a dog"]
TARGETS = ["le chien dort", "un homme", "", "12 chats entendent un oiseau", "maison", "le petit chien voit la maison"]


def check_equal(one: Translation, other: Translation) -> None:
    assert (one.text, one.src_ids, one.tgt_ids, one.tokens) == (other.text, other.src_ids, other.tgt_ids, other.tokens)
    np.testing.assert_allclose([one.score, one.log_prob], [other.score, other.log_prob], atol=1e-9)
    np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, atol=1e-9)
    assert (one.attention is None) == (other.attention is None)
    if one.attention is not None and other.attention is not None:
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-6)


# -- translations that are given --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_tokens", [8, 4000])
@pytest.mark.parametrize(
    "kinds", [["bahdanau"], ["plain"], ["bahdanau", "luong"], ["plain", "luong"], ["plain", "plain"]], ids="+".join
)
def test_forced_translations_are_those_of_the_models(kinds: list[str], batch_tokens: int) -> None:
    translator = random_translator(kinds[0], kinds[1:], batch_tokens=batch_tokens, normalization="wu", alpha=0.8)
    source, target = word_tokenizers()
    found = translator.force(SOURCES, TARGETS)
    assert len(found) == len(SOURCES)
    for src, tgt, one in zip(SOURCES, TARGETS, found, strict=True):
        ids = tuple(target.encode(tgt))
        assert one.text == tgt
        assert one.src_ids == (*source.encode(src), EOS)
        assert one.tgt_ids == (*ids, EOS)
        assert one.tokens == tuple(target.pieces(one.tgt_ids))
        read = [force_all(model, list(one.src_ids), [ids]) for model in translator.models]
        probs = torch.stack([log_probs[0].exp() for log_probs, _ in read]).mean(dim=0)  # (T, V)
        wanted = [float(probs[step, token].log()) for step, token in enumerate(one.tgt_ids)]
        np.testing.assert_allclose(one.token_log_probs, wanted, atol=1e-9)
        np.testing.assert_allclose(one.log_prob, sum(wanted), atol=1e-9)
        np.testing.assert_allclose(one.score, divided(sum(wanted), len(one.tgt_ids), translator.search), atol=1e-9)
        weights = [some[0] for _, some in read if some is not None]
        if not weights:
            assert one.attention is None
            continue
        assert one.attention is not None
        np.testing.assert_allclose(one.attention, torch.stack(weights).mean(dim=0), atol=1e-6)


def test_forcing_what_was_found_gives_its_probability() -> None:
    translator = random_translator(others=["luong"], normalization="average")
    found = [best[0] for best in translator.translate(SOURCE_LINES)]
    for one, again in zip(found, translator.force(SOURCE_LINES, [one.text for one in found]), strict=True):
        check_equal(again, one)


def test_forcing_leaves_training() -> None:
    translator = random_translator(others=["plain"])
    expected = translator.force(SOURCES[:2], TARGETS[:2])
    for model in translator.models:
        model.train()
    for one, other in zip(translator.force(SOURCES[:2], TARGETS[:2]), expected, strict=True):
        check_equal(one, other)
    assert not any(model.training for model in translator.models)


# -- what is read of a line -------------------------------------------------------------------------------------------


def test_a_long_line_is_cut_with_a_warning() -> None:
    translator = random_translator(max_source=3)
    with pytest.warns(
        UserWarning, match=r"line 6 has 4 pieces; those after the first 3 \(search\.max_source\)"
    ) as said:
        found = translator.translate(["the small dog", "the small dog sleeps"], first_line=5)
    assert len(said) == 1, "a line of exactly the limit is whole"
    check_equal(found[1][0], found[0][0])
    with pytest.warns(UserWarning, match="line 40 has 4 pieces") as said:
        translator.force(["the small dog sleeps", "a"], ["le", "chien dort"], numbers=[40, 50])
    assert len(said) == 1
    with pytest.warns(UserWarning, match="line 8 has 5 pieces") as said:
        translator.force(["a", "a"], ["le", "un homme voit la maison"], first_line=7)
    assert len(said) == 1


def test_an_empty_line_has_an_empty_translation() -> None:
    translator = random_translator()
    for several in translator.translate(["", " ", "the dog"], num_best=2)[:2]:
        (one,) = several
        assert (one.text, one.score, one.log_prob, one.token_log_probs) == ("", 0.0, 0.0, (0.0,))
        assert (one.src_ids, one.tgt_ids, one.tokens) == ((EOS,), (EOS,), ("</s>",))
        assert one.attention is not None
        assert one.attention.tolist() == [[1.0]]
    assert random_translator("plain").translate([""])[0][0].attention is None


@pytest.mark.parametrize("beam", [1, 3])
def test_lines_do_not_depend_on_their_neighbours(beam: int) -> None:
    translator = random_translator(beam=beam, batch_tokens=9)
    together = translator.translate(SOURCES)
    for line, found in zip(SOURCES, together, strict=True):
        for one, other in zip(found, translator.translate([line])[0], strict=True):
            check_equal(one, other)


def test_as_many_are_found_as_are_asked_for() -> None:
    translator = random_translator()
    best = translator.translate(["the dog sleeps"])[0]
    several = translator.translate(["the dog sleeps"], num_best=3)[0]
    assert (len(best), len(several)) == (1, 3)
    check_equal(best[0], several[0])
    assert [one.score for one in several] == sorted((one.score for one in several), reverse=True)
    assert len({one.tgt_ids for one in several}) == 3


def test_the_beam_is_as_wide_as_it_is_asked_to_be() -> None:
    """One place is greedy search; the lines are such that two and three find better ones."""
    scores = []
    for beam in (1, 2, 3):
        translator = random_translator(beam=beam, ending=1.0, seed=14)
        total = 0.0
        for line in SOURCE_LINES:
            ids = [*translator.source.encode(line), EOS]
            source = translator.model.encode(
                torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.tensor([len(ids)])
            )
            ((wanted,),) = beam_search(translator.model, source, translator.search)
            (found,) = translator.translate([line])[0]
            assert found.tgt_ids == (*wanted.tokens, EOS)
            total += found.score
        scores.append(total)
    assert scores[0] < scores[1] < scores[2]


def test_attention_is_left_out_on_request() -> None:
    translator = random_translator(replace_unknown=False)
    with_it, without = translator.translate(["the dog"])[0][0], translator.translate(["the dog"], attention=False)[0][0]
    assert with_it.attention is not None
    assert with_it.attention.shape == (len(with_it.tgt_ids), 3)
    assert without.attention is None
    assert without.tgt_ids == with_it.tgt_ids


def test_draws_go_by_the_number_of_the_line() -> None:
    translator = random_translator(sample=True, temperature=2.0, seed=3)
    found = translator.translate(SOURCES, num_best=4, first_line=11)
    for number, (line, several) in enumerate(zip(SOURCES, found, strict=True), start=11):
        if not line:
            continue
        ids = [*translator.source.encode(line), EOS]
        model = translator.model
        encoded = model.encode(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.tensor([len(ids)]))
        (wanted,) = sample(model, encoded, translator.search, [number], 4)
        assert [one.tgt_ids[:-1] for one in several] == [one.tokens for one in wanted]
    assert len({one.tgt_ids for one in found[1]}) > 1


# -- batches ----------------------------------------------------------------------------------------------------------


def test_lines_of_like_length_are_searched_together() -> None:
    sentences = [[4] * length for length in (3, 0, 1, 5, 3, 2)]
    rows = [some.tolist() for some in batch_rows(sentences, SearchConfig(batch_tokens=12), 1)]
    assert rows == [[3, 0], [4, 5, 2]], "long ones first; with </s> 2 · 6 and 3 · 4 positions"
    assert [some.tolist() for some in batch_rows([[], []], SearchConfig(), 1)] == []


@pytest.mark.parametrize(("elements", "most"), [(MOST_ELEMENTS // 2, 2), (MOST_ELEMENTS // 3, 3), (MOST_ELEMENTS, 1)])
def test_the_table_of_a_step_stays_small(elements: int, most: int) -> None:
    rows = batch_rows([[4]] * 7, SearchConfig(), elements)
    assert [len(some) for some in rows] == [most] * (7 // most) + [7 % most] * bool(7 % most)
    assert sorted(int(row) for some in rows for row in some) == list(range(7))
    assert [len(some) for some in batch_rows([[4]] * 3, SearchConfig(), 2 * MOST_ELEMENTS)] == [1, 1, 1]


# -- wishes -----------------------------------------------------------------------------------------------------------


def test_prefixes_and_required_words_are_kept() -> None:
    translator = random_translator(banned=["le", "petit"])
    found = translator.translate(
        ["the dog", "", "a man"], prefixes=["la maison", "", ""], required=[[], [], ["oiseau", "12 chats"]]
    )
    assert found[0][0].text.startswith("la maison")
    assert "oiseau" in found[2][0].text.split(" ")
    assert "12 chats" in found[2][0].text
    assert not {"le", "petit"} & {word for some in translator.translate(SOURCES) for word in some[0].text.split(" ")}


def test_entities_that_were_read_are_kept() -> None:
    translator = random_translator(max_source=3, keep_entities=True)
    with pytest.warns(UserWarning, match="line 2 has 4 pieces"):
        (whole,), (cut,) = translator.translate(["the 12 34", "the small dog 34"])
    assert {"12"} <= set(whole.text.split(" "))
    alone = random_translator(max_source=3, keep_entities=True).translate(["the small dog"])[0][0]
    assert cut.text == alone.text, "what is not read need not come"


def test_unknown_words_are_replaced_where_words_are_pieces() -> None:
    translator = random_translator("luong", length_ratio=1.0, length_extra=1)
    with torch.no_grad():
        translator.model.decoder.output.vocabulary.bias[UNK] += 50.0
    line = "the small dog"
    (one,) = translator.translate([line])[0]
    assert one.attention is not None
    pointed = [line.split(" ")[int(row[:3].argmax())] for row in one.attention[:-1]]
    assert one.text == " ".join(pointed)
    assert set(one.tgt_ids[:-1]) == {UNK}
    assert translator.translate([line], attention=False)[0][0].text == one.text
    raw = random_translator("luong", length_ratio=1.0, length_extra=1, replace_unknown=False)
    raw.model.load_state_dict(translator.model.state_dict())
    assert "⁇" in raw.translate([line])[0][0].text


@pytest.mark.parametrize(
    ("search", "required", "num_best", "message"),
    [
        ({"sample": True, "keep_entities": True}, None, 1, "need beam search"),
        ({"sample": True}, [["le"]], 1, "need beam search"),
        ({"banned": ["le", "un"]}, [["un"]], 1, "'un' is required and banned"),
        ({"beam": 2}, None, 3, r"search\.beam = 2 finds 2"),
        ({"beam": 4, "groups": 2}, [["le"]], 1, "both divide the beam"),
        ({"beam": 4, "groups": 2, "keep_entities": True}, None, 1, "both divide the beam"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_line(
    search: dict[str, object], required: list[list[str]] | None, num_best: int, message: str
) -> None:
    translator = random_translator(**search)
    with pytest.raises(ConfigError, match=message):
        translator.translate([""], num_best=num_best, required=required)


def test_what_works_is_not_refused() -> None:
    assert len(random_translator(sample=True).translate(["the dog"], num_best=9)[0]) == 9
    assert len(random_translator(beam=4, groups=2).translate(["the dog"], num_best=4)[0]) <= 4
    assert random_translator(banned=["le"]).translate(["the dog"], required=[["un", ""]])[0]


# -- several models ---------------------------------------------------------------------------------------------------


def test_an_ensemble_trains_if_any_member_does_and_leaves_training_as_a_whole() -> None:
    models = random_translator(others=["luong", "plain"]).models
    ensemble = Ensemble(models)
    assert not ensemble.training
    for model in models:
        model.train()
        assert ensemble.training
        model.eval()
    for model in models:
        model.train()
    ensemble.eval()
    assert [model.training for model in models] == [False] * 3


@pytest.mark.parametrize("others", [[], ["luong"]])
def test_search_leaves_training(others: list[str]) -> None:
    translator = random_translator(others=others)
    expected = translator.translate(SOURCE_LINES)
    for model in translator.models:
        model.train()
    for (one,), (other,) in zip(translator.translate(SOURCE_LINES), expected, strict=True):
        check_equal(one, other)
    assert not any(model.training for model in translator.models)


def test_an_ensemble_shows_the_first_members_source() -> None:
    translator = random_translator(others=["luong"])
    src, valid = torch.tensor([[4, 5, EOS], [6, EOS, 0]]), torch.tensor([[True] * 3, [True, True, False]])
    joint = Ensemble(translator.models).encode(src, valid, valid.sum(dim=1))
    first = translator.model.encode(src, valid, valid.sum(dim=1))
    assert torch.equal(joint.tokens, src)
    assert torch.equal(joint.valid, valid)
    assert torch.equal(joint.summary, first.summary)
    assert not torch.equal(joint.members[1].summary, first.summary)


def test_attention_of_an_ensemble_is_that_of_the_members_that_have_any() -> None:
    alone, both = random_translator("luong"), random_translator("luong", ["plain"])
    target = "le chien"
    assert random_translator("plain", ["plain"]).translate(["the dog"])[0][0].attention is None
    found = both.translate(["the dog"], prefixes=[target])[0][0]
    forced = alone.force(["the dog"], [found.text])[0]
    assert found.attention is not None
    assert forced.attention is not None
    np.testing.assert_allclose(found.attention, forced.attention, atol=1e-6)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_runs_are_loaded_alone_and_together(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "other", seed=2, decoder="luong")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator, both = Translator.load(one), Translator.load(one, ensemble=[other])
    assert len(translator.models) == 1
    assert translator.search.length_extra == 3, "the run's own settings"
    assert [model.decoder.name for model in both.models] == ["bahdanau", "luong"]
    sources, targets = SOURCE_LINES, TARGET_LINES
    second = Translator.load(other)
    for first, mean, last in zip(*(some.force(sources, targets) for some in (translator, both, second)), strict=True):
        probs = (np.exp(first.token_log_probs) + np.exp(last.token_log_probs)) / 2
        np.testing.assert_allclose(mean.token_log_probs, np.log(probs), atol=1e-4)
        assert first.text == mean.text


def test_runs_that_cannot_be_averaged_are_refused(tmp_path: Path) -> None:
    run, back = write_run(tmp_path / "run"), write_run(tmp_path / "back", source="fr", target="en")
    with pytest.raises(RunError, match=r"back translates fr → en, .*run en → fr"):
        Translator.load(run, ensemble=[back])
    other = write_run(tmp_path / "other")
    for side in ("source", "target"):
        path = other / f"tokenizer.{side}.model"
        before = path.read_bytes()
        path.write_bytes(word_tokenizers()[side == "source"].model)
        with pytest.raises(RunError, match="different tokenizers"):
            Translator.load(run, ensemble=[other])
        path.write_bytes(before)
    Translator.load(run, ensemble=[other])
