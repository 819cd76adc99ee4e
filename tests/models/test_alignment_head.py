"""The alignment head: where it starts, what it reads, and that padding does not matter."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.models.small_models import TGT_VOCABULARY, Inputs, make_inputs, make_model, shake
from translate.models.alignment_head import AlignmentHead, HeadInputs, HeadSizes, head_inputs, shifted
from translate.models.seq2seq import Seq2Seq

TGT_LENGTHS = (5, 3, 1)


def read(model: Seq2Seq, given: Inputs, tgt_out: Tensor, tgt_lengths: Tensor) -> HeadInputs:
    tgt_valid = torch.arange(tgt_out.size(1)) < tgt_lengths.unsqueeze(1)
    return head_inputs(model, given.src, given.src_valid, given.src_lengths, given.tgt_in, tgt_out, tgt_valid)


def make(kind: str = "conditional") -> tuple[Seq2Seq, AlignmentHead, Inputs, Tensor]:
    model = make_model(decoder__kind=kind)
    head = AlignmentHead(HeadSizes.of(model, 6)).double()
    given = make_inputs(steps=max(TGT_LENGTHS))
    tgt_out = torch.randint(4, TGT_VOCABULARY, given.tgt_in.shape, generator=torch.Generator().manual_seed(5))
    return model, head, given, tgt_out


def test_a_head_starts_from_attention() -> None:
    model, head, given, tgt_out = make()
    inputs = read(model, given, tgt_out, torch.tensor(TGT_LENGTHS))
    found = head(inputs)
    for row, (num_src, num_tgt) in enumerate(zip(given.src_lengths.tolist(), TGT_LENGTHS, strict=True)):
        for t in range(num_tgt):
            after = min(t + 1, num_tgt - 1)
            mean = (inputs.weights[row, t, :num_src] * inputs.weights[row, after, :num_src]).sqrt()
            torch.testing.assert_close(found[row, t, :num_src], mean / mean.sum(), rtol=1e-4, atol=1e-6)


def test_rows_are_distributions_without_padding_for_every_decoder() -> None:
    for kind in ("bahdanau", "luong", "conditional"):
        model, head, given, tgt_out = make(kind)
        found = shake(head)(read(model, given, tgt_out, torch.tensor(TGT_LENGTHS)))
        assert found.shape == (*tgt_out.shape, given.src.size(1))
        torch.testing.assert_close(found.sum(dim=2), torch.ones_like(found[..., 0]))
        assert not found.masked_select(~given.src_valid.unsqueeze(1)).any()


def test_a_batch_gives_what_each_sentence_gives_alone() -> None:
    model, head, given, tgt_out = make()
    shake(head)
    together = head(read(model, given, tgt_out, torch.tensor(TGT_LENGTHS)))
    for row, num_tgt in enumerate(TGT_LENGTHS):
        one = given.alone(row)
        one = Inputs(one.src, one.src_valid, one.src_lengths, one.tgt_in[:, :num_tgt])
        alone = head(read(model, one, tgt_out[row : row + 1, :num_tgt], torch.tensor([num_tgt])))
        torch.testing.assert_close(together[row, :num_tgt, : one.src.size(1)], alone[0])


def test_the_query_has_read_the_word_itself() -> None:
    """Attention at step t cannot know word t; the head's answer for it changes with the word."""
    model, head, given, tgt_out = make()
    shake(head)
    place, other = 2, tgt_out.clone()
    other[0, place] = (other[0, place] - 4 + 1) % (TGT_VOCABULARY - 4) + 4
    changed = Inputs(given.src, given.src_valid, given.src_lengths, given.tgt_in.clone())
    changed.tgt_in[0, place + 1] = other[0, place]
    before = read(model, given, tgt_out, torch.tensor(TGT_LENGTHS))
    after = read(model, changed, other, torch.tensor(TGT_LENGTHS))
    torch.testing.assert_close(before.weights[0, : place + 1], after.weights[0, : place + 1])
    assert not torch.allclose(head(before)[0, place], head(after)[0, place], atol=1e-3)


def test_shifts_stop_at_the_ends_of_each_sentence() -> None:
    steps = torch.arange(10.0).reshape(2, 5, 1)
    lengths = torch.tensor([5, 2])
    assert shifted(steps, 2, lengths)[..., 0].tolist() == [[2, 3, 4, 4, 4], [6, 6, 6, 6, 6]]
    assert shifted(steps, -1, lengths)[0, :, 0].tolist() == [0, 0, 1, 2, 3]


def test_no_gradient_reaches_the_model() -> None:
    model, head, given, tgt_out = make()
    shake(head)(read(model, given, tgt_out, torch.tensor(TGT_LENGTHS)))[..., 0].sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in head.parameters())
