"""From features to log probabilities: the output layer, tied matrices, the copying pointer; and how a model starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from covering import DECODER, EMBEDDING, configure
from small_models import TGT_VOCABULARY, check_close, make_inputs, make_model, output, run, sample
from torch import Tensor, nn

from translate.models.decoders import DECODERS, CopyGate
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
    src, tgt, out = model.src_embed.table.weight, model.decoder.embed.table.weight, model.decoder.out.weight
    assert (out is tgt, src is tgt) == {"none": (False, False), "two": (True, False), "three": (True, True)}[tied]
    assert model.num_parameters == sum(parameter.numel() for parameter in set(model.parameters()))


@pytest.mark.parametrize("tied", ["none", "two"])
@pytest.mark.parametrize("kind", DECODERS)
@torch.no_grad()
def test_log_probabilities_are_those_of_a_softmax(kind: str, tied: str) -> None:
    """Over W f + b; where W is the table of embeddings and features are wider, a product fits them first."""
    model = make(kind, embedding__tied=tied)
    decoded, source = run(model, make_inputs())
    features, out = decoded.features, model.decoder.out
    assert isinstance(out.fit, nn.Linear) == (tied == "two" and features.size(-1) != EMBEDDING)
    if isinstance(out.fit, nn.Linear):
        features = features @ out.fit.weight.T
    logits = features @ out.weight.T + out.bias
    check_close(output(model, decoded, source), logits - logits.exp().sum(dim=-1, keepdim=True).log())


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
    assert isinstance(model.decoder.copy, CopyGate)
    assert decoded.weights is not None
    vocabulary = model.decoder.out(decoded.features).exp().numpy()
    weight, bias = model.decoder.copy.gate.weight[0].numpy(), model.decoder.copy.gate.bias.item()
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
    picked = model.decoder.output(features[rows], weights[rows], source, rows)
    check_close(picked, model.decoder.output(features[rows], weights[rows], source.select(rows)))
    check_close(picked, model.decoder.output(features, weights, source)[rows])
    check_close(
        model.decoder.output(features, weights, source, torch.arange(3)),
        model.decoder.output(features, weights, source),
    )
    wrong = model.decoder.output(features[rows], weights[rows], source, torch.tensor([0, 1, 2, 2]))
    assert not torch.allclose(picked, wrong)


@torch.no_grad()
def test_a_word_that_the_vocabulary_never_says_can_be_copied() -> None:
    model, decoded, source = copying()
    token = int(source.tokens[0, 3])
    model.decoder.out.bias[token] = -1e4
    assert model.decoder.out(decoded.features)[0, :, token].max() < -1e3
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
    assert model.decoder.copy.gate.bias.tolist() == [2.0]
    assert model.decoder.attention.score.shares.tolist() == [0.5, 0.5]
    first = model.decoder.stack.first
    assert first.input.bias.tolist() == [0.0] * DECODER + [1.0] * DECODER + [0.0] * 2 * DECODER
    assert first.input_norm.weight.tolist() == [1.0] * 4 * DECODER
    assert not first.input_norm.bias.any()
    assert not model.decoder.out.bias.any()
    other = Seq2Seq(configure({"attention.score": "cosine"}), 17, 19, 12)
    assert other.decoder.attention is not None
    assert other.decoder.attention.score.log_scale.tolist() == [2.0]  # type: ignore[operator]
