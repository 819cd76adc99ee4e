"""What flows between encoder, decoder and search: plain dataclasses of tensors, nothing hidden on modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

Pick = Callable[[Tensor], Tensor]


class Rows:
    """A dataclass of tensors that share their first dimension, so that rows can be picked from all of them at once."""

    def select(self, rows: Tensor) -> Self:
        """The same thing for the given rows, in the given order, with repetitions where asked."""
        return self._mapped(lambda tensor: tensor.index_select(0, rows), {})

    def first(self, count: int) -> Self:
        """The same thing for the first rows, without a copy."""
        return self._mapped(lambda tensor: tensor[:count], {})

    def _mapped(self, pick: Pick, done: dict[int, Tensor]) -> Self:
        return type(self)(**{f.name: _map(getattr(self, f.name), pick, done) for f in fields(self)})  # type: ignore[arg-type]


def _map(value: Any, pick: Pick, done: dict[int, Tensor]) -> Any:
    """`done` has what was picked before: a tensor that stands in two places is picked once and stays in both."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, Tensor):
        if id(value) not in done:
            done[id(value)] = pick(value)
        return done[id(value)]
    if isinstance(value, tuple):
        return tuple(_map(part, pick, done) for part in value)
    if isinstance(value, dict):
        return {name: _map(part, pick, done) for name, part in value.items()}
    assert isinstance(value, Rows), f"cannot pick rows of {type(value).__name__}"
    return value._mapped(pick, done)


@dataclass(frozen=True)
class SourceCache(Rows):
    """All that attention needs of the source and that does not change while the target is written."""

    keys: Tensor  # (B, G, S, A / G)
    values: Tensor  # (B, G, S, C / G), or of more rows, of which the first count
    read: Tensor | None = None  # (B, 1, S, R), what the recurrence makes of the values: then looks find this, summed up

    def first(self, count: int) -> SourceCache:
        """What is summed up stays whole: `mix` takes what it needs, and the gradient is formed in one place."""
        return replace(self, keys=self.keys[:count])


@dataclass(frozen=True)
class Sharing:
    """How rows of a search share sentences: those of a sentence are neighbours, at most K of them."""

    sentences: Tensor  # (N,), whose each row is, ascending
    slots: Tensor | None  # (N,), where it stands in the flat (B, K) table; None where all of that is taken
    shape: tuple[int, int]  # B, K

    @classmethod
    def of(cls, sentences: Tensor, num_sentences: int) -> Sharing:
        """`sentences` (N,) are numbered from 0 and each has a row at least."""
        counts = sentences.bincount(minlength=num_sentences)  # (B,)
        shape = num_sentences, int(counts.max())
        if len(sentences) == math.prod(shape):
            return cls(sentences, None, shape)
        places = torch.arange(len(sentences), device=sentences.device) - (counts.cumsum(0) - counts)[sentences]
        return cls(sentences, sentences * shape[1] + places, shape)

    def spread(self, rows: Tensor) -> Tensor:
        """(N, …) -> (B, K, …), zero where no row stands."""
        if self.slots is not None:
            rows = rows.new_zeros(math.prod(self.shape), *rows.shape[1:]).index_copy_(0, self.slots, rows)
        return rows.unflatten(0, self.shape)

    def gather(self, table: Tensor) -> Tensor:
        """(B, K, …) -> (N, …)."""
        flat = table.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)


@dataclass(frozen=True)
class EncodedSource(Rows):
    """A batch of sources, read."""

    tokens: Tensor  # (B, S)
    memory: Tensor  # (B, S, D), zero at padding
    valid: Tensor  # (B, S)
    cache: SourceCache | None  # None for a decoder without attention
    summary: Tensor  # (B, D)
    progress: float = 1.0  # the share of training that is done, for what is annealed
    sharing: Sharing | None = None  # where several rows of a search look at one sentence; else row by row

    def shared(self, sentences: Tensor) -> EncodedSource:
        """The same for rows of which several may look at one sentence (N,), ascending, without a copy for each."""
        kept, renumbered = sentences.unique_consecutive(return_inverse=True)
        source = self if len(kept) == len(self.tokens) else self.select(kept)
        return replace(source, sharing=Sharing.of(renumbered, len(kept)))

    def first(self, count: int) -> EncodedSource:
        """The first rows, for the steps of a loop."""
        cache = None if self.cache is None else self.cache.first(count)
        return EncodedSource(
            self.tokens[:count], self.memory[:count], self.valid[:count], cache, self.summary[:count], self.progress
        )


@dataclass(frozen=True)
class State(Rows):
    """A decoder between two steps."""

    hidden: tuple[Tensor, ...]  # L × (B, H), and as many cells after them where the unit is an LSTM
    position: Tensor  # (B,), how many steps were taken
    fed: Tensor | None = None  # (B, F), the attentional vector of the step before, where it is fed back
    coverage: Tensor | None = None  # (B, S), the weights of all steps so far, where they are asked for
    masks: tuple[Tensor, ...] = ()  # variational dropout of this sentence
    notes: dict[str, Tensor] = field(default_factory=dict)  # (B,) each, what the last step leaves for the loss


@dataclass(frozen=True)
class Decoded:
    """A batch of targets, written under teacher forcing."""

    features: Tensor  # (B, T, F)
    weights: Tensor | None  # (B, T, S), the mean over heads; None without attention
    notes: dict[str, Tensor] = field(default_factory=dict)  # (B, T) each, what the loss needs besides
