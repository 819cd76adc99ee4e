"""Several models that write one translation: their probabilities are averaged at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, RowSelectable, State


@dataclass(frozen=True)
class JointSource(RowSelectable):
    """A batch of sources, encoded by every member."""

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
    """The states of all members between two steps."""

    members: tuple[State, ...]


class Ensemble:
    """A `SearchModel` of models with the same vocabularies: averages their probabilities and attention weights."""

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
        return JointSource(tuple(model.encode(src, src_valid, src_lengths) for model in self.models))

    def for_search(self, source: JointSource, hypotheses: int) -> JointSource:
        members = zip(self.models, source.members, strict=True)
        return JointSource(tuple(model.for_search(one, hypotheses) for model, one in members))

    def for_hypotheses(self, source: JointSource, sentences: Tensor) -> JointSource:
        members = zip(self.models, source.members, strict=True)
        return JointSource(tuple(model.for_hypotheses(one, sentences) for model, one in members))

    def start(self, source: JointSource) -> JointState:
        members = zip(self.models, source.members, strict=True)
        return JointState(tuple(model.start(one) for model, one in members))

    def advance(
        self, tokens: Tensor, state: JointState, source: JointSource
    ) -> tuple[Tensor, JointState, Tensor | None]:
        members = zip(self.models, state.members, source.members, strict=True)
        all_log_probs, states, all_weights = zip(*(m.advance(tokens, one, src) for m, one, src in members), strict=True)
        mean = torch.logsumexp(torch.stack(all_log_probs), dim=0) - math.log(len(self.models))  # (N, V)
        weights = [some for some in all_weights if some is not None]
        return mean, JointState(states), torch.stack(weights).mean(dim=0) if weights else None
