"""Tiny models with random weights, batches of random sources, and plain references for what search should find."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from torch import Tensor

from translate.config import (
    AttentionConfig,
    DecoderConfig,
    EmbeddingConfig,
    EncoderConfig,
    ModelConfig,
    SearchConfig,
)
from translate.config.members import MEMBERS
from translate.decoding.hypotheses import Hypothesis
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, State
from translate.text.tokenizer import BOS, EOS, PAD

torch.set_num_threads(1)

DECODERS = {
    "bahdanau": DecoderConfig(kind="bahdanau", width=7, layers=2),
    "luong+feeding": DecoderConfig(kind="luong", width=7, input_feeding=True),
    "luong": DecoderConfig(kind="luong", width=7, input_feeding=False),
    "plain": DecoderConfig(kind="plain", width=7),
}
# And every other decoder that takes the additive score, plugins too.
DECODERS |= {
    kind: DecoderConfig(kind=kind, width=7)
    for kind, decoder in MEMBERS["decoder.kind"].items()
    if kind not in DECODERS and decoder.scores is None
}
SRC_VOCABULARY = 13
Ranking = list[tuple[float, tuple[int, ...]]]  # scores and tokens


def make_model(
    name: str, tgt_vocabulary: int = 11, seed: int = 0, ending: float = 0.0, src_vocabulary: int = SRC_VOCABULARY
) -> Seq2Seq:
    """A float64 model with peaky, varied distributions; `ending` is added to the logit of `</s>`."""
    config = ModelConfig(
        embedding=EmbeddingConfig(width=5, tied="none"),
        encoder=EncoderConfig(width=6),
        attention=AttentionConfig(score="additive", width=4),
        decoder=DECODERS[name],
    )
    torch.manual_seed(seed)
    model = Seq2Seq(config, src_vocabulary, tgt_vocabulary, 20).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
        model.decoder.output.vocabulary.weight.mul_(2.0)
        model.decoder.output.vocabulary.bias[EOS] += ending
    return model


def make_sources(lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Sources of the given lengths, `</s>` included; of length 0, nothing at all."""
    generator = torch.Generator().manual_seed(seed)
    words = [torch.randint(EOS + 1, SRC_VOCABULARY, (max(n - 1, 0),), generator=generator).tolist() for n in lengths]
    return [[*row, EOS] if n else [] for n, row in zip(lengths, words, strict=True)]


@torch.no_grad()
def encode(model: Seq2Seq, sources: list[list[int]], more_padding: int = 0) -> EncodedSource:
    """A padded batch, read."""
    size = max(1, *(len(row) for row in sources)) + more_padding
    src = torch.tensor([row + [PAD] * (size - len(row)) for row in sources])
    lengths = torch.tensor([len(row) for row in sources])
    return model.encode(src, torch.arange(size) < lengths.unsqueeze(1), lengths)


@torch.no_grad()
def force_all(model: Seq2Seq, source: list[int], targets: list[tuple[int, ...]]) -> tuple[Tensor, Tensor | None]:
    """For N targets of one length, by `forward`: log probabilities (N, T, V) after each prefix, weights (N, T, S)."""
    encoded = encode(model, [source]).select(torch.zeros(len(targets), dtype=torch.long))
    decoded = model.decoder(torch.tensor([[BOS, *tokens] for tokens in targets]), encoded)
    return model.decoder.output.log_probs(decoded.features, decoded.weights, encoded), decoded.weights


def log_prob_of(log_probs: Tensor, targets: list[tuple[int, ...]]) -> list[float]:
    """The sum over the tokens and `</s>` of each target."""
    gold = torch.tensor([[*tokens, EOS] for tokens in targets]).unsqueeze(-1)  # (N, T, 1)
    return log_probs.gather(2, gold).sum(dim=(1, 2)).tolist()


def divided(log_prob: float, length: int, search: SearchConfig) -> float:
    """Length normalisation, written down once more."""
    divisors = {"none": 1.0, "average": length, "wu": ((5 + length) / 6) ** search.alpha}
    return log_prob / divisors[search.normalization]


def check_against_forced(model: Seq2Seq, source: list[int], found: Hypothesis, search: SearchConfig) -> None:
    """Score, log probability and attention of a hypothesis are those of its tokens under teacher forcing."""
    assert not {PAD, BOS, EOS} & set(found.tokens)
    log_probs, weights = force_all(model, source, [found.tokens])
    np.testing.assert_allclose(found.log_prob, log_prob_of(log_probs, [found.tokens]), atol=1e-9)
    np.testing.assert_allclose(found.score, divided(found.log_prob, len(found.tokens) + 1, search), rtol=1e-12)
    if weights is None:
        assert found.weights is None
    else:
        assert found.weights is not None
        assert found.weights.dtype == np.float32
        assert found.weights.shape == (len(found.tokens) + 1, len(source))
        np.testing.assert_allclose(found.weights, weights[0, :, : len(source)], atol=1e-6)


def exhaustive(
    model: Seq2Seq,
    source: list[int],
    longest: int,
    search: SearchConfig,
    allowed: Callable[[tuple[int, ...]], bool] = lambda tokens: True,
) -> Ranking:
    """Scores and tokens of all allowed translations of up to `longest` tokens with `</s>`, best first."""
    words = [w for w in range(model.decoder.output.vocabulary.out_features) if w not in (PAD, BOS, EOS)]
    scored = []
    for n in range(longest):
        targets = [tokens for tokens in product(words, repeat=n) if allowed(tokens)]
        if not targets:
            continue
        forced, weights = force_all(model, source, targets)
        for i, (total, tokens) in enumerate(zip(log_prob_of(forced, targets), targets, strict=True)):
            lost = 0.0
            if weights is not None and search.coverage_penalty:
                looked = weights[i].sum(dim=0)[: len(source) - 1]  # not at </s>
                lost = search.coverage_penalty * float(looked.clamp(1e-3, 1.0).log().sum())
            scored.append((divided(total, n + 1, search) + lost, tokens))
    return sorted(scored, reverse=True)


def check_equal(found: Hypothesis, expected: Hypothesis, tolerance: float = 1e-9) -> None:
    """Equal tokens, and numbers equal up to the tolerance; weights are float32."""
    assert found.tokens == expected.tokens
    np.testing.assert_allclose(found.log_prob, expected.log_prob, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.score, expected.score, rtol=0, atol=tolerance)
    assert (found.weights is None) == (expected.weights is None)
    if found.weights is not None and expected.weights is not None:
        np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-7 if tolerance else 0.0)


def count_rows(model: Seq2Seq) -> list[int]:
    """A list that grows by the number of rows of each step the decoder takes from now on."""
    counts: list[int] = []
    step = model.decoder.step

    def counting(token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        counts.append(len(token))
        return step(token, state, source)

    model.decoder.step = counting  # type: ignore[method-assign]
    return counts
