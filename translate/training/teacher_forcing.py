"""Scheduled sampling (Bengio et al. 2015): the decoder sometimes reads its own word instead of the reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from translate import kernels
from translate.config import TeacherForcingConfig
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource
from translate.text.tokenizer import BOS, PAD


def ratio_at(config: TeacherForcingConfig, share: float, steps: float) -> float:
    """The share of reference tokens when `share` (0 to 1) of `steps` updates are done.

    The inverse sigmoid is k / (k + exp(i / k)), with k such that half of the change is done at half of the updates.
    """
    if config.schedule == "constant":
        return config.ratio
    span = config.end - config.ratio
    if config.schedule == "linear":
        return config.ratio + span * min(1.0, share)
    assert config.schedule == "inverse_sigmoid"
    k = _inverse_sigmoid_constant(steps / 2)
    return config.end - span * k / (k + math.exp(min(share * steps / k, 700.0)))


def decode_mixed(
    model: Seq2Seq,
    source: EncodedSource,
    tgt_in: Tensor,
    ratio: float,
    config: TeacherForcingConfig,
    generator: torch.Generator,
) -> Decoded:
    """Step through the targets (B, T), drawing for each unit whether the reference or the model's own word is read.

    The chosen words carry no gradient; all random numbers come from the given CPU generator.
    """
    num_rows, length = tgt_in.shape
    shape = {"token": (num_rows, length), "sentence": (num_rows, 1), "batch": (1, 1)}[config.unit]
    coins = torch.rand(shape, generator=generator) < ratio
    needless = coins.expand(num_rows, length).all(dim=0).tolist()  # steps at which no row reads its own word
    forced = coins.expand(num_rows, length).to(tgt_in.device)  # (B, T)
    state, token = model.decoder.start(source), tgt_in[:, 0]
    features, weights, loss_terms = [], [], []
    with kernels.share_gradients():
        for t in range(length):
            feature, state, weight = model.decoder.step(token, state, source)
            features.append(feature)
            weights.append(weight)
            loss_terms.append(state.loss_terms)
            if t + 1 == length:
                break
            token = tgt_in[:, t + 1]
            if not needless[t + 1]:
                own = _own_word(model, feature, weight, source, config, generator)  # (B,)
                token = torch.where(forced[:, t + 1], token, own)
    return Decoded(torch.stack(features, dim=1), _stack_steps(weights), _stack_terms(loss_terms))


def _stack_steps(weights: list[Tensor | None]) -> Tensor | None:
    """The weights (B, S) of all steps as (B, T, S), if there are any."""
    there = [one for one in weights if one is not None]
    return torch.stack(there, dim=1) if there else None


def _stack_terms(steps: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The loss terms (B,) of all steps as (B, T)."""
    return {name: torch.stack([step[name] for step in steps], dim=1) for name in (steps[0] if steps else ())}


@torch.no_grad()
def _own_word(
    model: Seq2Seq,
    feature: Tensor,
    weight: Tensor | None,
    source: EncodedSource,
    config: TeacherForcingConfig,
    generator: torch.Generator,
) -> Tensor:
    log_probs = model.decoder.output.log_probs(feature, weight, source)  # (B, V)
    log_probs[:, [PAD, BOS]] = -torch.inf  # as in search, where they never follow
    if config.feed == "argmax":
        return log_probs.argmax(dim=-1)
    assert config.feed == "sample"
    # Gumbel's trick: the generator lives on the CPU, so that a run draws the same words on every device.
    noise = torch.rand(log_probs.shape, generator=generator).clamp(min=1e-20).to(log_probs.device)
    return (log_probs - torch.log(-torch.log(noise))).argmax(dim=-1)


def _inverse_sigmoid_constant(midpoint: float) -> float:
    """The k for which k / (k + exp(midpoint / k)) is one half: k log k = midpoint."""
    low, high = 1.0, max(4.0, midpoint)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < midpoint else (low, middle)
    return high
