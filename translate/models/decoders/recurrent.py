"""What recurrent decoders share: how they start, step, and loop over all steps in training.

The letters of shapes are those of translate/models/__init__.py; `gates` in a shape is 3 for a GRU and 4 for an LSTM.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from translate import kernels
from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.attention import Attention
from translate.models.decoders.base import Decoder
from translate.models.layers import Dropout
from translate.models.recurrence import RecurrentStack
from translate.models.source_views import Attended, ContextMatrices, PlainView, SearchView, SourceView, TrainingView
from translate.models.state import Decoded, EncodedSource, RecurrentState

_FEW_ROWS = 8  # below this, reading the matrix dominates the time of a product


class TokenInput(NamedTuple):
    """The token that a step reads, embedded."""

    embedded: Tensor  # (B, E)
    prepared: Tensor  # (B, gates · H), what `from_token` computes from it, for example W E y_{t−1} + b


class Transition(NamedTuple):
    """What a step returns."""

    state: RecurrentState  # of the next step
    output_state: Tensor  # (B, H), for the readout: s_t of the top layer, or Luong's ĥ_t
    attended: Attended | None  # None without attention


class RecurrentDecoder(Decoder[RecurrentState]):
    """A decoder defines up to four methods in its own file; this class calls them in training and in search.

    `context_matrices` names the matrices that the decoder applies to the context c_t, if any: one in its recurrence,
    one in its readout. A `SourceView` applies them, before or after the weighted sum, whichever is faster. A decoder
    that names a matrix C gets C c_t; one that names none gets c_t.
    `from_token` computes what depends on the token alone; in training it is called once for all steps.
    `transition` is one step of attention and recurrence.
    `readout` computes the features, from which `output` computes probabilities; in training it is called once for all
    steps.
    """

    supports: ClassVar[tuple[str, ...]] = ("cell", "layers", "layer_norm", "variational", "coverage")
    token_table: Tensor | None = None  # (V, gates · H), `from_token` of every token; search sets it on its own copy

    def __init__(
        self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int, *,
        query_width: int | None = None, input_width: int | None = None, extra_width: int | None = None,
    ) -> None:  # fmt: skip
        """The optional widths, with their defaults: of the query (H), of the lowest layer's inputs that are known
        before the loop (E), and of its inputs that are known only at their step (C).
        """
        super().__init__(config, memory_width, table, positions)
        settings = config.decoder
        self.dropout = Dropout(settings.dropout)
        self.attention = None
        if self.attends:
            self.attention = Attention(config.attention, query_width or self.width, memory_width, positions)
        self.context_width = memory_width if self.attention is None else self.attention.context_width  # C
        self.stack = RecurrentStack(
            input_width or config.embedding.width, self.context_width if extra_width is None else extra_width,
            self.width, settings.layers, settings.dropout, settings.cell, settings.layer_norm,
        )  # fmt: skip
        self.bridge = FastLinear(memory_width, self.width * self.stack.num_tensors)

    # -- the parts of a decoder ----------------------------------------------------------------------------------------

    def context_matrices(self) -> ContextMatrices:
        """The matrices that recurrence and readout apply to the context; None where they read the context itself."""
        return ContextMatrices(recurrence=None, readout=None)

    def from_token(self, embedded: Tensor) -> Tensor:
        """The part of a step that depends only on its token: (…, E) -> (…, gates · H)."""
        return self.stack.lowest.input_gates(embedded)

    @abstractmethod
    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        """One step of all rows."""

    @abstractmethod
    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        """embedded (…, E), output_state (…, H), projected_context (…, C_o) -> features (…, F), of one step or of all.

        `projected_context` is C_o c_t, with C_o the readout's matrix; None without attention.
        """

    # -- search and training -------------------------------------------------------------------------------------------

    def start(self, source: EncodedSource) -> RecurrentState:
        """s_0 = tanh(W summary), one part for each layer.

        In Bahdanau et al. 2015, appendix A.2.2, the summary is the backward state of the first word; here it is what
        `encoder.summary` names.
        """
        hidden = torch.tanh(self.bridge(source.summary))  # (B, L·H), for LSTMs (B, 2L·H)
        coverage = None
        if self.attention is not None and self.attention.covered is not None:
            coverage = torch.zeros_like(source.tokens, dtype=torch.promote_types(hidden.dtype, torch.float32))
        return RecurrentState(
            hidden=self.stack.hidden(hidden),
            position=torch.zeros_like(source.tokens[:, 0]),
            coverage=coverage,
            masks=self.stack.masks(hidden) if self.config.decoder.variational else (),
        )

    def step(
        self, token: Tensor, state: RecurrentState, source: EncodedSource
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        embedded = self.embed(token)  # (B, E)
        prepared = self.from_token(embedded) if self.token_table is None else self.token_table.index_select(0, token)
        next_state, output_state, attended = self.transition(TokenInput(embedded, prepared), state, self._view(source))
        if attended is None:
            return self.readout(embedded, output_state, None), next_state, None
        return self.readout(embedded, output_state, attended.to_readout), next_state, attended.weights

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        with kernels.share_gradients():
            return self._loop(tgt_in, source)

    def _loop(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        """Step by step, except what can be computed for all steps at once. Steps come first: (T, B, …)."""
        view, state, transitions = self._training_view(source), self.start(source), []
        embedded = self.embed(tgt_in.t())  # (T, B, E)
        for token in map(TokenInput, embedded, self.from_token(embedded)):
            transition = self.transition(token, state, view)
            state = transition.state
            transitions.append(transition)
        output_states = torch.stack([transition.output_state for transition in transitions])  # (T, B, H)
        weights, contexts = self._collected(view, [transition.attended for transition in transitions])
        features = self.readout(embedded, output_states, contexts)  # (T, B, F)
        loss_terms = {
            name: torch.stack([transition.state.loss_terms[name] for transition in transitions], dim=1)  # (B, T)
            for name in state.loss_terms
        }
        return Decoded(features.transpose(0, 1), weights, loss_terms)

    def _collected(self, view: SourceView, attended: list[Attended | None]) -> tuple[Tensor | None, Tensor | None]:
        """The weights (B, T, S) of all steps, and their contexts for the readout (T, B, …)."""
        steps = [step for step in attended if step is not None]
        if not steps:
            return None, None
        weights = torch.stack([step.weights for step in steps], dim=1)
        contexts = [step.to_readout for step in steps if step.to_readout is not None]
        return weights, torch.stack(contexts) if contexts else view.readout_contexts(weights).transpose(0, 1)

    # -- the source ----------------------------------------------------------------------------------------------------

    def _view(self, source: EncodedSource) -> SourceView:
        """The view of the source for a single step."""
        projected = source.cache is not None and source.cache.projected_values is not None
        return (SearchView if projected else PlainView)(self.attention, self.context_matrices(), source)

    def _training_view(self, source: EncodedSource) -> SourceView:
        """The view of the source for the training loop."""
        matrices = self.context_matrices()
        has_both = all(matrix is not None for matrix in matrices)
        linear = has_both and self.attention is not None and self.attention.is_one_sum
        return (TrainingView if linear else PlainView)(self.attention, matrices, source)

    def for_search(self, source: EncodedSource, hypotheses: int) -> EncodedSource:
        """Apply both matrices to the values if that is faster, and drop the memory, which steps do not read.

        With one hypothesis for each of many sentences it is not faster: a target is about as long as its source.
        Matrices quantised to 8 bits are applied at each step.
        """
        source = replace(source, memory=source.memory[:, :0])
        if self.attention is None or not self.attention.is_one_sum:
            return source
        matrices = self.context_matrices()
        exact = all(isinstance(matrix, FastLinear) for matrix in matrices)
        if not exact or (hypotheses == 1 and len(source.tokens) > _FEW_ROWS):
            return source
        return SearchView.prepare(matrices, source)

    def for_hypotheses(self, source: EncodedSource, sentences: Tensor) -> EncodedSource:
        """Hypotheses of a sentence share the prepared source, unless coverage makes it different for each."""
        if self.attention is None or self.attention.covered is not None:
            return source.select(sentences)
        return source.shared(sentences)
