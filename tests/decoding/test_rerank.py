"""A run of the other direction ranks again; an alignment head takes the place of attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.small_runs import SOURCE_LINES, TARGET_LINES, random_translator, reverse_translator
from translate.decoding.heads import read_head
from translate.decoding.rerank import rerank
from translate.models.alignment_head import AlignmentHead, HeadSizes, head_inputs


@pytest.mark.parametrize("weight", [0.0, 0.7, 50.0])
def test_the_score_of_the_other_direction_is_added(weight: float) -> None:
    translator, reverse = random_translator(), reverse_translator()
    found = translator.translate(SOURCE_LINES, num_best=3)
    ranked = rerank(reverse, SOURCE_LINES, found, weight, num_best=2)
    for line, before, after in zip(SOURCE_LINES, found, ranked, strict=True):
        again = reverse.force([one.text for one in before], [line] * len(before))
        scores = [one.score + weight * other.score for one, other in zip(before, again, strict=True)]
        assert [one.score for one in after] == pytest.approx(sorted(scores, reverse=True)[:2])
        assert after[0].text == before[int(np.argmax(scores))].text
        assert after[0].log_prob == before[int(np.argmax(scores))].log_prob


def test_a_line_that_is_too_long_for_the_other_run_is_named_by_its_number() -> None:
    translator, reverse = random_translator(), reverse_translator(max_source=3)
    found = translator.translate(["the dog", "the small dog sleeps"])
    found = [[one] for one in (found[0][0], found[0][0])]
    with pytest.warns(UserWarning, match="line 10 has 4 pieces"):
        rerank(reverse, ["the dog", "the small dog sleeps"], found, 1.0, 1, first_line=9)


@pytest.mark.parametrize("batch_tokens", [8, 4000])
def test_a_head_reads_each_pair_as_if_it_were_alone(batch_tokens: int) -> None:
    translator = random_translator()
    model = translator.model
    torch.manual_seed(3)
    head = AlignmentHead(HeadSizes.of(model, 5)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    given = translator.force([*SOURCE_LINES, ""], [*TARGET_LINES, ""])
    model.train()
    head.train()
    found = read_head(model, head, given, batch_tokens)
    assert not model.training
    assert not head.training
    for before, after in zip(given, found, strict=True):
        src, tgt = torch.tensor([before.src_ids]), torch.tensor([before.tgt_ids])
        tgt_in = torch.cat([torch.tensor([[2]]), tgt[:, :-1]], dim=1)
        inputs = head_inputs(
            model,
            src,
            torch.ones_like(src).bool(),
            torch.tensor([src.size(1)]),
            tgt_in,
            tgt,
            torch.ones_like(tgt).bool(),
        )
        with torch.no_grad():
            wanted = head(inputs)[0]
        assert after.attention is not None
        assert after.attention.shape == (len(before.tgt_ids), len(before.src_ids))
        np.testing.assert_allclose(after.attention, wanted, atol=1e-9)
        assert (after.text, after.score) == (before.text, before.score)
