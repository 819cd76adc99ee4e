"""The table of required words, and how long a translation must be for them, counted by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.decoding.decoding_models import encode, make_model, make_sources
from translate.config import SearchConfig
from translate.decoding.beam import beam_search
from translate.decoding.constraints import Constraint, Constraints, Required

CPU = torch.device("cpu")


def table() -> Required:
    """Of the first sentence two phrases of two tokens and of one, of the second none, of the third one."""
    return Required([[(5, 6), (7,)], [], [(8,)]], CPU)


def missing_tokens(required: Required) -> list[set[int]]:
    return [set(row) - {-1} for row in required.candidates().tolist()]


def written(required: Required, rows: list[int], tokens: list[int]) -> list[tuple[int, int]]:
    """How many required tokens are written, and how many are missing."""
    have, lack = required.written(torch.tensor(rows), torch.tensor(tokens))
    return list(zip(have.tolist(), lack.tolist(), strict=True))


def test_at_first_everything_is_missing() -> None:
    required = table()
    assert required.lengths.tolist() == [[2, 1], [0, 0], [1, 0]]
    assert required.num_banks == 4, "none to three tokens written"
    assert required.closed.tolist() == [True, False, True]
    assert missing_tokens(required) == [{5, 7}, set(), {8}]


def test_what_a_token_would_write() -> None:
    required = table()
    found = written(required, [0, 0, 0, 0, 1, 2, 2], [5, 6, 7, 9, 8, 8, 5])
    # A phrase that is begun counts as written so far, and is missing until its end.
    assert found == [(1, 3), (0, 3), (1, 2), (0, 3), (0, 0), (1, 0), (0, 1)]


def test_phrases_are_followed_to_their_ends() -> None:
    required = table()
    required.follow(torch.tensor([0, 0, 2, 1]), torch.tensor([5, 7, 8, 5]))
    assert required.closed.tolist() == [True, True, False, False]
    assert missing_tokens(required) == [{5, 6, 7}, {5}, set(), set()]
    assert written(required, [0, 0, 0, 1, 2], [6, 7, 5, 5, 8]) == [(2, 1), (1, 2), (1, 3), (2, 2), (1, 0)]
    required.follow(torch.tensor([0, 0]), torch.tensor([6, 9]))
    assert required.closed.tolist() == [True, True]
    assert missing_tokens(required) == [{7}, {5, 7}], "a phrase that is broken off begins anew"
    assert written(required, [0, 1], [7, 7]) == [(3, 0), (1, 2)]
    required.follow(torch.tensor([0]), torch.tensor([7]))
    assert required.closed.tolist() == [False]


def test_a_phrase_may_begin_inside_itself() -> None:
    required = Required([[(8, 8, 9)]], CPU)
    for token, closed in ((8, True), (8, True), (8, True), (9, False)):
        required.follow(torch.tensor([0]), torch.tensor([token]))
        assert required.closed.tolist() == [closed]


def test_banks_take_turns() -> None:
    required = table()

    def order(totals: list[float], banks: list[int]) -> list[int]:
        found: Tensor = required.order(torch.tensor([totals]), torch.tensor([banks]))
        return found[0].tolist()

    # The best of each bank first, of those the one with more written; then the second of each.
    assert order([-1.0, -2.0, -3.0, -4.0], [0, 0, 1, 2]) == [3, 2, 0, 1]
    assert order([-2.0, -1.0, -3.0, -0.5], [3, 3, 3, 3]) == [3, 1, 0, 2]
    # What is impossible comes last, in the best bank too.
    assert order([-1.0, -torch.inf, -2.0, -torch.inf], [0, 3, 0, 2])[:2] == [0, 2]


def test_a_translation_is_long_enough_for_what_it_must_hold() -> None:
    assert Constraint().length == 1
    assert Constraint(prefix=(4, 5), required=((6,), (7, 8))).length == 6
    encoded = encode(make_model("plain"), make_sources([3, 3, 3]))
    each = [Constraint(prefix=(4,) * 9), Constraint(required=((4, 5),)), Constraint()]
    constraints = Constraints(encoded, SearchConfig(length_ratio=1.0, length_extra=1), (), each)
    assert constraints.longest.tolist() == [10, 3, 3]
    assert constraints.shortest.tolist() == [1, 1, 1]
    assert constraints.prefixes.tolist() == [[4] * 9, [-1] * 9, [-1] * 9]
    assert Constraints(encoded, SearchConfig(), (), [Constraint()] * 3).required is None


def test_where_nothing_may_follow_the_end_does() -> None:
    """All words are used, none may come twice, and the translation is too short: better the end than nothing."""
    encoded = encode(make_model("plain", tgt_vocabulary=6), make_sources([3, 3]))
    search = SearchConfig(no_repeat_ngram=1, min_length=9, length_extra=20)
    log_probs = torch.tensor([[-9.0, -1.0, -9.0, -5.0, -2.0, -3.0]] * 2)
    past = torch.tensor([[1, 4, 5], [1, 4, 4]])
    Constraints(encoded, search).apply(log_probs, torch.tensor([0, 1]), 4, past)
    assert log_probs.tolist() == [[-torch.inf] * 3 + [-5.0] + [-torch.inf] * 2, [-torch.inf] * 5 + [-3.0]]


def test_what_ends_without_a_required_word_does_not_end_the_search() -> None:
    """After token 4 nothing but the end may follow, and so it ends before any that hold token 5."""
    banned, each = [(4, 1), (4, 4), (4, 5)], [Constraint(required=((5,),))] * 3
    for seed in range(6):
        model, sources = make_model("bahdanau", tgt_vocabulary=6, seed=seed, ending=-2.0), make_sources([3, 5, 4])
        with torch.no_grad():
            model.decoder.output.vocabulary.bias[4] += 6.0
        encoded = encode(model, sources)
        for stop in ("first", "exact", "full"):
            search = SearchConfig(beam=4, stop=stop, length_ratio=1.0, length_extra=4)
            for found in beam_search(model, encoded, search, constraints=Constraints(encoded, search, banned, each)):
                assert 5 in found[0].tokens


def test_what_cannot_be_had_is_left_out() -> None:
    """A required word that is banned as well: the best translation without it, not an error."""
    model, sources = make_model("bahdanau", tgt_vocabulary=6, ending=2.0), make_sources([3, 5])
    encoded, search = encode(model, sources), SearchConfig(beam=3, length_ratio=1.0, length_extra=2)
    each = [Constraint(required=((4,),)), Constraint()]
    for found in beam_search(model, encoded, search, 2, Constraints(encoded, search, [(4,)], each)):
        assert len(found) == 2
        assert all(4 not in one.tokens for one in found)
