"""Sampling: one random number per (seed, line, draw, step), so that results do not depend on the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.constraints import Constraints
from translate.decoding.hypotheses import Hypothesis
from translate.decoding.left_to_right import left_to_right
from translate.decoding.search_model import SearchModel, Source, State


def sample(
    model: SearchModel[Source, State],
    source: Source,
    search: SearchConfig,
    lines: Sequence[int],
    num_draws: int = 1,
    constraints: Constraints | None = None,
    attention: bool = True,
) -> list[list[Hypothesis]]:
    """`num_draws` translations of each sentence in the order drawn; `lines` are the sentences' line numbers.

    Log probabilities and scores are the model's own, without temperature, top_k and top_p.
    """
    num_sentences = source.tokens.size(0)
    keys = draw_keys(search.seed, np.repeat(np.asarray(lines), num_draws), np.tile(np.arange(num_draws), num_sentences))

    def drawn(log_probs: Tensor, units: Tensor, length: int) -> tuple[Tensor, Tensor]:
        numbers = torch.from_numpy(uniform(keys[units.cpu().numpy()], length)).to(log_probs.device)  # (N,)
        tokens = draw(log_probs, numbers, search)  # (N,)
        return log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1), tokens

    found = left_to_right(model, source, search, constraints, attention, drawn, copies=num_draws)
    return [found[i * num_draws : (i + 1) * num_draws] for i in range(num_sentences)]


def draw(log_probs: Tensor, numbers: Tensor, search: SearchConfig) -> Tensor:
    """Invert the cumulative distribution: log probabilities (N, V), numbers (N,) in [0, 1) -> tokens (N,)."""
    scaled = log_probs.double() if log_probs.device.type == "cpu" else log_probs  # mps has no float64
    scaled = scaled / search.temperature
    order = None
    if search.top_k or search.top_p < 1.0:  # the likeliest first; the order does not change the distribution
        kept = min(search.top_k or scaled.size(1), scaled.size(1))
        scaled, order = scaled.topk(kept, dim=1) if search.top_k else scaled.sort(dim=1, descending=True, stable=True)
    probs = torch.softmax(scaled, dim=1)  # (N, V')
    if search.top_p < 1.0:  # Holtzman et al. 2020: the fewest tokens with this total probability
        probs = probs.masked_fill(probs.cumsum(dim=1) - probs >= search.top_p, 0.0)
    upto = probs.cumsum(dim=1)
    wanted = numbers.to(upto.dtype).unsqueeze(1) * upto[:, -1:]
    places = torch.searchsorted(upto, wanted, right=True)  # (N, 1)
    last = (probs > 0).long().mul(torch.arange(1, probs.size(1) + 1, device=probs.device)).amax(dim=1) - 1
    places = torch.minimum(places, last.clamp(min=0).unsqueeze(1))  # rounding may lead past the last
    return (places if order is None else order.gather(1, places)).squeeze(1)


def draw_keys(seed: int, lines: NDArray[np.int64], draws: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One key for each pair of line and draw."""
    key = _mix(np.full(len(lines), seed, dtype=np.uint64))
    return _mix(_mix(key + lines.astype(np.uint64)) + draws.astype(np.uint64))


def uniform(keys: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """One number in [0, 1) for each key at a step."""
    return (_mix(keys + np.uint64(step)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Steele et al. 2014, SplitMix64: close inputs give unrelated outputs."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
