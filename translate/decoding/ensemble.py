"""Several models that write one translation: their probabilities are averaged at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, RowSelectable, State


@dataclass(frozen=True)
class JointSource(RowSelectable):
    """A batch of sources, read by every member."""

    members: tuple[EncodedSource, ...]

    @property
    def tokens(self) -> Tensor:
        return self.members[0].tokens

    @property
    def valid(self) -> Tensor:
        return self.members[0].valid

    @property
    def summary(self) -> Tensor:
        return self.members[0].summary


@dataclass(frozen=True)
class JointState(RowSelectable):
    """The members between two steps."""

    members: tuple[State, ...]


AnySource: TypeAlias = EncodedSource | JointSource
AnyState: TypeAlias = State | JointState


class Ensemble:
    """Models with the same vocabularies: p(y) is the mean of theirs, and so is where they look."""

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        assert models
        self.models = tuple(models)

    @property
    def training(self) -> bool:
        return any(model.training for model in self.models)

    def eval(self) -> None:
        for model in self.models:
            model.eval()

    def encode(self, src: Tensor, src_valid: Tensor, src_lengths: Tensor) -> JointSource:
        """As `Seq2Seq.encode`."""
        return JointSource(tuple(model.encode(src, src_valid, src_lengths) for model in self.models))

    def for_search(self, source: AnySource, hypotheses: int) -> JointSource:
        """As the decoders' `for_search`."""
        assert isinstance(source, JointSource)
        members = zip(self.models, source.members, strict=True)
        return JointSource(tuple(model.decoder.for_search(one, hypotheses) for model, one in members))

    def for_hypotheses(self, source: AnySource, sentences: Tensor) -> JointSource:
        """As the decoders' `for_hypotheses`."""
        assert isinstance(source, JointSource)
        members = zip(self.models, source.members, strict=True)
        return JointSource(tuple(model.decoder.for_hypotheses(one, sentences) for model, one in members))

    def start(self, source: AnySource) -> JointState:
        """As the decoders' `start`."""
        assert isinstance(source, JointSource)
        members = zip(self.models, source.members, strict=True)
        return JointState(tuple(model.decoder.start(one) for model, one in members))

    def advance(self, tokens: Tensor, state: AnyState, source: AnySource) -> tuple[Tensor, JointState, Tensor | None]:
        """One step of all rows: log probabilities (N, V), the next state, weights (N, S)."""
        assert isinstance(source, JointSource)
        assert isinstance(state, JointState)
        all_log_probs, states, all_weights = [], [], []
        for model, before, one in zip(self.models, state.members, source.members, strict=True):
            features, after, weights = model.decoder.step(tokens, before, one)
            all_log_probs.append(model.decoder.output.log_probs(features, weights, one))
            states.append(after)
            if weights is not None:
                all_weights.append(weights)
        mean = torch.logsumexp(torch.stack(all_log_probs), dim=0) - math.log(len(self.models))  # (N, V)
        return mean, JointState(tuple(states)), torch.stack(all_weights).mean(dim=0) if all_weights else None
