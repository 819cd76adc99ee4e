"""From features to log probabilities: the output layer, tied matrices, the copying pointer; and how a model starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.covering import DECODER, EMBEDDING, configure
from tests.models.small_models import TGT_VOCABULARY, check_close, make_inputs, make_model, output, run, sample
from translate.kernels import FastLinear, vocabulary
from translate.models.decoders import DECODERS
from translate.models.output import CopyGate
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource
from translate.text.tokenizer import EOS


def make(kind: str, **settings: Any) -> Seq2Seq:
    score = "location" if kind == "tutorial" else "additive"
    return make_model(decoder__kind=kind, attention__score=score, **settings)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("tied", ["none", "two", "three"])
def test_tied_matrices_are_one(tied: str, kind: str) -> None:
    model = make(kind, embedding__tied=tied)
    src, tgt, out = (
        model.src_embed.table.weight,
        model.decoder.embed.table.weight,
        model.decoder.output.vocabulary.weight,
    )
    assert (out is tgt, src is tgt) == {"none": (False, False), "two": (True, False), "three": (True, True)}[tied]
    assert model.num_parameters == sum(parameter.numel() for parameter in set(model.parameters()))


@pytest.mark.parametrize("tied", ["none", "two"])
@pytest.mark.parametrize("kind", DECODERS)
@torch.no_grad()
def test_log_probabilities_are_those_of_a_softmax(kind: str, tied: str) -> None:
    """Over W f + b; where W is the table of embeddings and features are wider, a product fits them first."""
    model = make(kind, embedding__tied=tied)
    decoded, source = run(model, make_inputs())
    features, out = decoded.features, model.decoder.output
    assert isinstance(out.fit, FastLinear) == (tied == "two" and features.size(-1) != EMBEDDING)
    if isinstance(out.fit, FastLinear):
        features = features @ out.fit.weight.T
    logits = features @ out.vocabulary.weight.T + out.vocabulary.bias
    check_close(output(model, decoded, source), logits - logits.exp().sum(dim=-1, keepdim=True).log())


def vocabulary_log_probs(model: Seq2Seq, features: Tensor) -> Tensor:
    """What the vocabulary alone says, before anything is copied: (…, F) -> (…, V)."""
    output = model.decoder.output
    return torch.log_softmax(output.vocabulary(output.fit(features)), dim=-1)


def copying(scope: str = "global", **settings: Any) -> tuple[Seq2Seq, Decoded, EncodedSource]:
    model = make_model(decoder__copy=True, attention__scope=scope, **settings)
    with torch.no_grad():
        decoded, source = run(model, make_inputs())
    return model, decoded, source


@pytest.mark.parametrize("scope", ["global", "local_p"])
@pytest.mark.parametrize("kind", ["bahdanau", "luong", "conditional"])
@torch.no_grad()
def test_copying_is_a_mixture(kind: str, scope: str) -> None:
    """p(y) = g p_vocabulary(y) + (1 − g) Σ_{s: x_s = y} α_s; </s> is not copied, and its share is the vocabulary's."""
    model, decoded, source = copying(scope, decoder__kind=kind)
    source.tokens[:, 0] = EOS
    found = output(model, decoded, source).exp().numpy()
    assert isinstance(model.decoder.output.copy, CopyGate)
    assert decoded.weights is not None
    vocabulary = vocabulary_log_probs(model, decoded.features).exp().numpy()
    weight, bias = model.decoder.output.copy.gate.weight[0].numpy(), model.decoder.output.copy.gate.bias.item()
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-12)
    for b, t in np.ndindex(found.shape[:2]):
        gate = 1 / (1 + np.exp(-(weight @ decoded.features[b, t].numpy() + bias)))
        expected, left = np.zeros_like(vocabulary[b, t]), 1.0
        for share, token in zip(decoded.weights[b, t].tolist(), source.tokens[b].tolist(), strict=True):
            if token != EOS:
                expected[token] += (1 - gate) * share
                left -= (1 - gate) * share
        expected += left * vocabulary[b, t]
        np.testing.assert_allclose(found[b, t], expected, atol=1e-12)


@torch.no_grad()
def test_rows_tell_whose_source_is_copied() -> None:
    model, decoded, source = copying()
    assert decoded.weights is not None
    features, weights = decoded.features[:, 0], decoded.weights[:, 0]
    rows = torch.tensor([2, 0, 0, 1])
    picked = model.decoder.output.log_probs(features[rows], weights[rows], source, rows)
    check_close(picked, model.decoder.output.log_probs(features[rows], weights[rows], source.select(rows)))
    check_close(picked, model.decoder.output.log_probs(features, weights, source)[rows])
    check_close(
        model.decoder.output.log_probs(features, weights, source, torch.arange(3)),
        model.decoder.output.log_probs(features, weights, source),
    )
    wrong = model.decoder.output.log_probs(features[rows], weights[rows], source, torch.tensor([0, 1, 2, 2]))
    assert not torch.allclose(picked, wrong)


@torch.no_grad()
def test_a_word_that_the_vocabulary_never_says_can_be_copied() -> None:
    model, decoded, source = copying()
    token = int(source.tokens[0, 3])
    model.decoder.output.vocabulary.bias[token] = -1e4
    assert vocabulary_log_probs(model, decoded.features)[0, :, token].max() < -1e3
    copied = output(model, decoded, source)[:, :, token].exp()
    assert (copied[0] > 1e-3).all()
    for row in (1, 2):  # and what does not stand in a source is not
        assert token not in source.tokens[row]
        assert (copied[row] < 1e-30).all()


def test_copying_has_the_right_gradient() -> None:
    gate = CopyGate(4).double()
    src, words = torch.tensor([[1, 3, 1], [0, 2, 4]]), torch.tensor([[True, True, True], [True, True, False]])
    features, logits, scores = (
        sample(2, width, seed=seed).requires_grad_() for seed, width in enumerate((4, 5, 3), start=1)
    )

    def mix(features: Tensor, logits: Tensor, scores: Tensor, *_: Tensor) -> Tensor:
        return gate(features, torch.log_softmax(logits, dim=-1), torch.softmax(scores, dim=-1), src, words)

    assert torch.autograd.gradcheck(mix, (features, logits, scores, *gate.parameters()))


def test_copying_is_finite_whatever_attention_says() -> None:
    """No weight at all, one that has all, a gate that is shut: values and gradients."""
    gate, src = CopyGate(2), torch.tensor([[1, 3, 1]] * 3)
    log_probs = torch.log_softmax(torch.tensor([[0.0, -200.0, 0.0, 200.0, 0.0]] * 3), dim=-1).requires_grad_()
    weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1e-30, 0.0, 0.0]], requires_grad=True)
    for scale in (0.0, 200.0, -200.0):
        found = gate(torch.full((3, 2), scale), log_probs, weights, src, torch.ones_like(src, dtype=torch.bool))
        assert found.isfinite().all()
        gradients = torch.autograd.grad(found.sum(), [log_probs, weights, *gate.parameters()])
        assert all(gradient.isfinite().all() for gradient in gradients)


# -- the loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 12])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("kind", "copy"), [(kind, False) for kind in DECODERS] + [("conditional", True)])
def test_the_loss_is_that_of_the_log_probabilities(
    kind: str, copy: bool, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients, in chunks of any number of tokens; log p(target) has no gradient."""
    model = make(kind, decoder__copy=copy)
    decoded, source = run(model, make_inputs())
    whose = torch.arange(3).repeat_interleave(4)
    features = decoded.features.flatten(0, 1)  # (N, F)
    weights = None if decoded.weights is None else decoded.weights.flatten(0, 1)  # (N, S)
    targets = torch.randint(0, TGT_VOCABULARY, (12,), generator=torch.Generator().manual_seed(6))
    log_probs = output(model, decoded, source).flatten(0, 1)  # (N, V)
    gold = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    expected = -(1 - smoothing) * gold.sum() - smoothing * log_probs.mean(dim=1).sum()
    monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", rows * TGT_VOCABULARY)
    loss, found = model.decoder.output.loss(features, weights, source, targets, whose, smoothing)
    check_close(loss, expected)
    check_close(found, gold.detach())
    assert not found.requires_grad
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(one, parameters, retain_graph=True) for one in (loss, expected))
    for one, other in zip(ours, theirs, strict=True):
        check_close(one, other)
    with torch.no_grad():
        check_close(model.decoder.output.loss(features, weights, source, targets, whose, smoothing)[0], expected)


# -- how a model starts ------------------------------------------------------------------------------------------------


def test_a_new_model_starts_as_it_should() -> None:
    config = configure(
        {"attention.score": "dual", "decoder.cell": "lstm", "decoder.copy": True, "decoder.layer_norm": True,
         "encoder.kind": "gru"}
    )  # fmt: skip
    torch.manual_seed(0)
    model: Any = Seq2Seq(config, TGT_VOCABULARY, TGT_VOCABULARY, 12)
    assert not model.src_embed.table.weight[0].any()
    assert not model.decoder.embed.table.weight[0].any()
    assert 0.35 < model.decoder.embed.table.weight[1:].std() < 0.55  # 1 / √5 = 0.45
    assert model.decoder.output.copy.gate.bias.tolist() == [2.0]
    assert model.decoder.attention.score.shares.tolist() == [0.5, 0.5]
    lowest = model.decoder.stack.lowest
    assert lowest.input.bias.tolist() == [0.0] * DECODER + [1.0] * DECODER + [0.0] * 2 * DECODER
    assert lowest.input_norm.weight.tolist() == [1.0] * 4 * DECODER
    assert not lowest.input_norm.bias.any()
    assert not model.decoder.output.vocabulary.bias.any()
    other = Seq2Seq(configure({"attention.score": "cosine"}), 17, 19, 12)
    assert other.decoder.attention is not None
    assert other.decoder.attention.score.log_scale.tolist() == [2.0]  # type: ignore[operator]
