"""Data passed between encoder, decoder and search: plain dataclasses of tensors; modules keep no state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from translate.models.recurrence import Hidden

if TYPE_CHECKING:
    from translate.models.source_views import Attended

Pick = Callable[[Tensor], Tensor]


class RowSelectable:
    """A dataclass of tensors that share their first dimension, so that rows can be picked from all of them at once."""

    def select(self, rows: Tensor) -> Self:
        """The given rows, in the given order, perhaps with repetitions."""
        return self._mapped(lambda tensor: tensor.index_select(0, rows), {})

    def _mapped(self, pick: Pick, done: dict[int, Tensor]) -> Self:
        return type(self)(**{f.name: _map(getattr(self, f.name), pick, done) for f in fields(self)})  # type: ignore[arg-type]


def _map(value: Any, pick: Pick, done: dict[int, Tensor]) -> Any:
    """`done` holds earlier results: a tensor that occurs twice is picked once, and the result is shared."""
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
    assert isinstance(value, RowSelectable), f"cannot pick rows of {type(value).__name__}"
    return value._mapped(pick, done)


@dataclass(frozen=True)
class SourceCache(RowSelectable):
    """All that attention needs of the source and that does not change while the target is written."""

    keys: Tensor  # (B, G, S, A / G)
    values: Tensor  # (B, G, S, C / G)
    projected_values: Tensor | None = None  # (B, 1, S, R + F), in search: values by both ContextMatrices


@dataclass(frozen=True)
class Sharing:
    """How rows of a search share sentences: those of a sentence are neighbours, at most K of them."""

    sentences: Tensor  # (N,), the sentence of each row, ascending
    slots: Tensor | None  # (N,), the place of each row in the flat (B, K) table; None where all places are taken
    shape: tuple[int, int]  # B, K

    @classmethod
    def of(cls, sentences: Tensor, num_sentences: int) -> Sharing:
        """`sentences` (N,) are numbered from 0, and each has at least one row."""
        counts = sentences.bincount(minlength=num_sentences)  # (B,)
        shape = num_sentences, int(counts.max())
        if len(sentences) == math.prod(shape):
            return cls(sentences, None, shape)
        places = torch.arange(len(sentences), device=sentences.device) - (counts.cumsum(0) - counts)[sentences]
        return cls(sentences, sentences * shape[1] + places, shape)

    def spread(self, rows: Tensor) -> Tensor:
        """(N, …) -> (B, K, …), zero in places without a row."""
        if self.slots is not None:
            rows = rows.new_zeros(math.prod(self.shape), *rows.shape[1:]).index_copy_(0, self.slots, rows)
        return rows.unflatten(0, self.shape)

    def gather(self, table: Tensor) -> Tensor:
        """(B, K, …) -> (N, …)."""
        flat = table.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)


@dataclass(frozen=True)
class EncodedSource(RowSelectable):
    """A batch of encoded sources."""

    tokens: Tensor  # (B, S)
    memory: Tensor  # (B, S, D), zero at padding
    valid: Tensor  # (B, S)
    cache: SourceCache | None  # None for a decoder without attention
    summary: Tensor  # (B, D)
    progress: float = 1.0  # the share of training that is done, for annealing
    sharing: Sharing | None = None  # in search, where several rows attend to one sentence

    def shared(self, sentences: Tensor) -> EncodedSource:
        """The source for rows of these sentences (N,), ascending; rows of one sentence share it without copies."""
        kept, renumbered = sentences.unique_consecutive(return_inverse=True)
        source = self if len(kept) == len(self.tokens) else self.select(kept)
        return replace(source, sharing=Sharing.of(renumbered, len(kept)))


@dataclass(frozen=True, kw_only=True)
class State(RowSelectable):
    """A decoder between two steps."""

    position: Tensor  # (B,), the number of steps taken
    loss_terms: dict[str, Tensor] = field(default_factory=dict)  # (B,) each, extra losses of the last step by name


@dataclass(frozen=True, kw_only=True)
class RecurrentState(State):
    """The state of a recurrent decoder."""

    hidden: Hidden  # of each layer h (B, H), and for an LSTM its cell
    fed: Tensor | None = None  # (B, F), Luong's attentional vector of the previous step, if it is fed back
    coverage: Tensor | None = None  # (B, S), the sum of the weights of all steps, if it is needed
    masks: tuple[Tensor, ...] = ()  # (B, H) each, variational dropout of this sentence

    @property
    def top(self) -> Tensor:
        """The state (B, H) of the top layer."""
        return self.hidden[-1][0]

    def next(self, hidden: Hidden, attended: Attended | None = None, fed: Tensor | None = None) -> RecurrentState:
        """The state after a step."""
        coverage = None
        if self.coverage is not None:
            assert attended is not None
            coverage = self.coverage + attended.weights
        return RecurrentState(
            hidden=hidden,
            position=self.position + 1,
            fed=fed,
            coverage=coverage,
            masks=self.masks,
            loss_terms={} if attended is None else attended.loss_terms,
        )


@dataclass(frozen=True)
class Decoded:
    """A batch of targets, written under teacher forcing."""

    features: Tensor  # (B, T, F)
    weights: Tensor | None  # (B, T, S), the mean over heads; None without attention
    loss_terms: dict[str, Tensor] = field(default_factory=dict)  # (B, T) each, extra losses by name
