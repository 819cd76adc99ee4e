"""The interface that search needs; one model and an ensemble both fulfil it."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

from torch import Tensor


class SearchRows(Protocol):
    """Tensors with one row for each hypothesis; search selects rows."""

    def select(self, rows: Tensor) -> Self: ...


class SearchSource(SearchRows, Protocol):
    """A batch of encoded sources."""

    @property
    def tokens(self) -> Tensor: ...  # (B, S)
    @property
    def valid(self) -> Tensor: ...  # (B, S)
    @property
    def summary(self) -> Tensor: ...  # (B, D)


Source = TypeVar("Source", bound=SearchSource)
State = TypeVar("State", bound=SearchRows)


class SearchModel(Protocol[Source, State]):
    """A model that writes translations token by token; search only passes `source` and `state` back to it."""

    @property
    def training(self) -> bool: ...

    def eval(self) -> object: ...

    def encode(self, src: Tensor, src_valid: Tensor, src_lengths: Tensor) -> Source:
        """src (B, S), src_valid (B, S), src_lengths (B,) on the CPU."""
        ...

    def for_search(self, source: Source, hypotheses: int) -> Source:
        """The source prepared for the steps of a search with this number of hypotheses of each sentence."""
        ...

    def for_hypotheses(self, source: Source, sentences: Tensor) -> Source:
        """The source for rows that belong to these sentences (N,), ascending."""
        ...

    def start(self, source: Source) -> State:
        """The state before the first step."""
        ...

    def advance(self, tokens: Tensor, state: State, source: Source) -> tuple[Tensor, State, Tensor | None]:
        """One step of all rows: tokens (N,) -> log probabilities (N, V), the next state, weights (N, S)."""
        ...
