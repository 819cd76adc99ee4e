"""Words to pieces and back: bans, entities, unknown words, and the ensemble's arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.decoding.decoding_models import encode, force_all, make_model, make_sources
from translate.config import SearchConfig, TokenizerConfig
from translate.decoding.beam import beam_search
from translate.decoding.constraint_text import banned_pieces, entities, make_constraints, replace_unknown
from translate.decoding.ensemble import Ensemble
from translate.decoding.greedy import greedy
from translate.errors import UserError
from translate.text.tokenizer import UNK, Tokenizer, train_tokenizer

LINES = ["the cat sees the cats", "a cat eats", "the dog eats a bone", "cats and dogs see bones", "that is that"] * 9


@pytest.fixture(scope="module")
def subwords() -> Tokenizer:
    return Tokenizer(train_tokenizer(LINES, TokenizerConfig(vocabulary=300), 1, print))


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer(train_tokenizer(LINES, TokenizerConfig(kind="word", vocabulary=40), 1, print))


def test_all_spellings_of_a_banned_word_are_found(subwords: Tokenizer) -> None:
    spellings = banned_pieces(subwords, ["cat", "the dog"])
    assert tuple(subwords.encode("cat")) in spellings
    assert tuple(subwords.encode("the dog")) in spellings
    assert len(set(spellings)) == len(spellings) > 4
    for pieces in spellings:
        assert subwords.decode(pieces) in ("cat", "the dog")
    letters = [subwords.pieces([i])[0] for i in range(subwords.size)]
    one_by_one = tuple(letters.index(piece) for piece in "▁cat")
    assert one_by_one in spellings


def test_banned_words_of_a_word_vocabulary(words: Tokenizer) -> None:
    assert banned_pieces(words, ["cat", "the dog", "elephant"]) == [
        tuple(words.encode("cat")),
        tuple(words.encode("the dog")),
    ]
    with pytest.raises(UserError, match="empty phrase"):
        banned_pieces(words, [" "])


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("write to a.b+c@d-e.org, or see https://x.org/a?b=1.", ["a.b+c@d-e.org", "https://x.org/a?b=1"]),
        ("at 12:30 on 3/4/2024 it cost 1,234.50 (not 7).", ["12:30", "3/4/2024", "1,234.50", "7"]),
        ("www.example.com!", ["www.example.com"]),
        ("no such thing", []),
        ("on 2019-05-03 by A4 paper for $50 (v2.0beta), +33-1-22", ["2019-05-03", "A4", "$50", "v2.0beta", "+33-1-22"]),
        ("a 3-year-old had 50% of 我有12个", ["3", "50%", "12"]),
    ],
)
def test_entities(line: str, found: list[str]) -> None:
    assert [entity.group() for entity in entities(line)] == found


def test_a_number_after_a_bracket_is_the_inside_of_a_word(subwords: Tokenizer) -> None:
    each = make_constraints(subwords, ["(12) 12"], None, None, True, 1)
    assert each is not None
    inside, alone = each[0].required
    assert subwords.decode([*subwords.encode("("), *inside]) == "(12"
    assert alone == tuple(subwords.encode("12"))


def test_only_so_many_entities_are_required(subwords: Tokenizer) -> None:
    line = " ".join(map(str, range(100, 300)))
    with pytest.warns(UserWarning, match="line 7 has 200 e-mail addresses"):
        each = make_constraints(subwords, [line], None, None, True, 7)
    assert each is not None
    assert len(each[0].required) == 50


def test_a_phrase_that_cannot_be_spelt_is_told_at_once(subwords: Tokenizer) -> None:
    assert banned_pieces(subwords, ["that cat " * 30 + "☃"]) in ([], [tuple(subwords.encode("that cat " * 30 + "☃"))])


def test_wishes(subwords: Tokenizer, words: Tokenizer) -> None:
    assert make_constraints(subwords, ["a"], None, None, False, 1) is None
    each = make_constraints(subwords, ["see 12", "cat"], ["the", ""], [["cat", "cat"], []], True, 1)
    assert each is not None
    assert each[0].prefix == tuple(subwords.encode("the"))
    assert each[0].required == (tuple(subwords.encode("cat")), tuple(subwords.encode("12")))
    assert (each[1].prefix, each[1].required) == ((), ())
    unknown = make_constraints(words, ["see 12"], None, None, True, 1)
    assert unknown is not None
    assert unknown[0].required == (), "a number that is no word of the vocabulary cannot be required"
    with pytest.raises(UserError, match=r"line 6: the required 'elephant'"):
        make_constraints(words, ["a", "b"], None, [["cat"], ["elephant"]], False, 5)


def test_unknown_words_come_from_where_attention_points(words: Tokenizer) -> None:
    target = [*words.encode("the cat"), UNK, UNK]
    line = "the  Zoë sees Quux"
    attention = np.full((5, 5), 0.1, dtype=np.float32)  # four words and </s>
    attention[2, 1] = attention[3, 3] = 0.4
    attention[3, 4] = 0.9  # </s> is no word
    assert replace_unknown(words, words, line, target, attention) == "the cat Zoë Quux"
    unknown = words.decode([UNK])
    assert replace_unknown(words, words, line, target, attention, ["Zoë"]) == f"the cat {unknown} Quux"
    # What tabs and the like hold together in the line are words of their own to the tokenizer.
    assert replace_unknown(words, words, "the\tZoë\x85sees Quux", target, attention) == "the cat Zoë Quux"


def test_a_piece_that_covers_nothing_is_no_word(subwords: Tokenizer, words: Tokenizer) -> None:
    line = "☃ cat"
    _, spans = subwords.encode_spans(line)
    (place,) = (place for place, (begin, end) in enumerate(spans) if begin == end)
    attention = np.full((2, len(spans) + 1), 0.1, dtype=np.float32)
    attention[0, place] = 0.9
    assert replace_unknown(subwords, words, line, [UNK], attention) == words.decode([UNK])
    attention[0, spans.index((0, 1))] = 1.0
    assert replace_unknown(subwords, words, line, [UNK], attention) == "☃"


def test_an_ensemble_averages_probabilities() -> None:
    models = [make_model("bahdanau", seed=1, ending=3.0), make_model("plain", seed=2, ending=3.0)]
    sources, search = make_sources([4, 1, 6]), SearchConfig(beam=3)
    ensemble = Ensemble(models)
    size = max(map(len, sources))
    src = torch.tensor([row + [0] * (size - len(row)) for row in sources])
    lengths = torch.tensor([len(row) for row in sources])
    joint = ensemble.encode(src, torch.arange(size) < lengths.unsqueeze(1), lengths)
    for found in (*beam_search(ensemble, joint, search, 2), greedy(ensemble, joint, search)):
        assert all(one.weights is not None for one in found)
    for source, found in zip(sources, beam_search(ensemble, joint, search, 2), strict=True):
        for one in found:
            probs = sum(force_all(model, source, [one.tokens])[0][0].exp() for model in models) / 2
            assert isinstance(probs, torch.Tensor)
            expected = sum(math.log(probs[t, token]) for t, token in enumerate((*one.tokens, 3)))
            assert one.log_prob == pytest.approx(expected, abs=1e-9)


def test_an_ensemble_of_one_model_twice_is_the_model() -> None:
    model, sources, search = make_model("luong", ending=3.0), make_sources([4, 1, 6]), SearchConfig(beam=3)
    alone = beam_search(model, encode(model, sources), search, 3)
    size = max(map(len, sources))
    src = torch.tensor([row + [0] * (size - len(row)) for row in sources])
    lengths = torch.tensor([len(row) for row in sources])
    twice = Ensemble([model, model])
    joint = twice.encode(src, torch.arange(size) < lengths.unsqueeze(1), lengths)
    for one, other in zip(alone, beam_search(twice, joint, search, 3), strict=True):
        assert [a.tokens for a in one] == [b.tokens for b in other]
