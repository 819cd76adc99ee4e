"""The loss against torch's cross entropy, gradients included."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from translate import kernels
from translate.config import ModelConfig
from translate.models.seq2seq import Seq2Seq
from translate.training.loss import SequenceLoss, sequence_loss

VOCABULARY = 19
LENGTHS = (5, 1, 3)  # of the targets
NUM_TOKENS = sum(LENGTHS)
MODELS = {
    "bahdanau": {"embedding": {"tied": "two"}, "decoder": {"kind": "bahdanau"}},
    "luong": {"embedding": {"tied": "three"}, "decoder": {"kind": "luong"}},
    "plain": {"embedding": {"tied": "none"}, "decoder": {"kind": "plain"}},
}
every_model = pytest.mark.parametrize("name", MODELS)
every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])


@dataclass(frozen=True)
class Pairs:
    src: Tensor  # (B, S)
    src_valid: Tensor  # (B, S)
    src_lengths: Tensor  # (B,)
    tgt_in: Tensor  # (B, T)
    tgt_out: Tensor  # (B, T)
    tgt_valid: Tensor  # (B, T)


def make_model(name: str) -> Seq2Seq:
    sizes = {"embedding": {"width": 6}, "encoder": {"width": 4}, "attention": {"width": 7}, "decoder": {"width": 10}}
    config = ModelConfig.model_validate({key: {**size, **MODELS[name].get(key, {})} for key, size in sizes.items()})
    torch.manual_seed(0)
    return Seq2Seq(config, VOCABULARY, VOCABULARY, 20).double().eval()


def make_pairs() -> Pairs:
    generator = torch.Generator().manual_seed(1)
    src_lengths = torch.tensor([4, 2, 1])
    src = torch.randint(4, VOCABULARY, (3, 4), generator=generator)
    tgt_in, tgt_out = torch.randint(4, VOCABULARY, (2, 3, max(LENGTHS)), generator=generator)
    tgt_valid = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    return Pairs(src, torch.arange(4) < src_lengths.unsqueeze(1), src_lengths, tgt_in, tgt_out, tgt_valid)


def loss_of(model: Seq2Seq, pairs: Pairs, smoothing: float) -> SequenceLoss:
    decoded, source = model(pairs.src, pairs.src_valid, pairs.src_lengths, pairs.tgt_in)
    return sequence_loss(model, decoded, source, pairs.tgt_out, pairs.tgt_valid, smoothing)


def reference_loss(model: Seq2Seq, pairs: Pairs, smoothing: float) -> Tensor:
    """torch's own, over all positions, with padding marked as such."""
    decoded, _ = model(pairs.src, pairs.src_valid, pairs.src_lengths, pairs.tgt_in)
    output = model.decoder.output
    logits = F.linear(output.fit(decoded.features), output.vocabulary.weight, output.vocabulary.bias)  # (B, T, V)
    targets = pairs.tgt_out.masked_fill(~pairs.tgt_valid, -100)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", label_smoothing=smoothing)


def gradients(model: Seq2Seq, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def check_all_close(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@every_model
@every_smoothing
def test_the_loss_is_torchs_cross_entropy(name: str, smoothing: float) -> None:
    model, pairs = make_model(name), make_pairs()
    loss, nll, gold = loss_of(model, pairs, smoothing)
    expected = reference_loss(model, pairs, smoothing)
    check_all_close([loss, nll], [expected, reference_loss(model, pairs, 0.0)])
    check_all_close([-gold.sum(), gold.masked_fill(pairs.tgt_valid, 0.0)], [nll, torch.zeros_like(gold)])
    check_all_close(gradients(model, loss), gradients(model, expected))


@every_model
def test_padding_never_reaches_the_vocabulary(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs = make_model(name), make_pairs()
    sizes: list[int] = []
    vocabulary_loss = kernels.vocabulary_loss

    def noted(features: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        sizes.append(len(features))
        return vocabulary_loss(features, *others)

    monkeypatch.setattr(kernels, "vocabulary_loss", noted)
    loss_of(model, pairs, 0.1)
    assert sizes == [NUM_TOKENS]


@every_model
def test_padding_does_not_count(name: str) -> None:
    """Neither more of it nor what stands there, on either side, in value or gradient."""
    model, pairs = make_model(name), make_pairs()
    loss, nll, gold = loss_of(model, pairs, 0.1)
    longer = replace(
        pairs,
        src=F.pad(pairs.src.masked_fill(~pairs.src_valid, 5), (0, 3), value=6),
        src_valid=F.pad(pairs.src_valid, (0, 3)),
        tgt_in=F.pad(pairs.tgt_in.masked_fill(~pairs.tgt_valid, 7), (0, 2), value=8),
        tgt_out=F.pad(pairs.tgt_out.masked_fill(~pairs.tgt_valid, 9), (0, 2), value=10),
        tgt_valid=F.pad(pairs.tgt_valid, (0, 2)),
    )
    padded, padded_nll, padded_gold = loss_of(model, longer, 0.1)
    check_all_close([padded, padded_nll, padded_gold], [loss, nll, F.pad(gold, (0, 2))])
    check_all_close(gradients(model, padded), gradients(model, loss))


def test_the_loss_of_a_batch_is_the_sum_over_its_sentences() -> None:
    model, pairs = make_model("luong"), make_pairs()
    alone = []
    for row in range(3):
        one = slice(row, row + 1)
        parts = (pairs.src, pairs.src_valid, pairs.src_lengths, pairs.tgt_in, pairs.tgt_out, pairs.tgt_valid)
        alone.append(loss_of(model, Pairs(*(part[one] for part in parts)), 0.1))
    losses, likelihoods, golds = zip(*alone, strict=True)
    check_all_close(
        list(loss_of(model, pairs, 0.1)),
        [torch.stack(losses).sum(), torch.stack(likelihoods).sum(), torch.cat(golds)],
    )


def test_the_likelihood_is_for_looking_at_only() -> None:
    loss, nll, gold = loss_of(make_model("bahdanau"), make_pairs(), 0.1)
    assert loss.requires_grad
    assert not nll.requires_grad
    assert not gold.requires_grad


def test_a_share_without_tokens_has_gradients_of_zero() -> None:
    model, pairs = make_model("bahdanau"), make_pairs()
    nothing = replace(pairs, tgt_valid=torch.zeros_like(pairs.tgt_valid))
    found = gradients(model, loss_of(model, nothing, 0.1)[0])
    assert all(not gradient.any() for gradient in found)
