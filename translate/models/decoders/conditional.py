"""Sennrich et al. 2017: Nematus, a toolkit for neural machine translation; its decoder is Firat and Cho's of 2016."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.recurrence import RecurrentLayer
from translate.models.source_views import ContextMatrices, SourceView
from translate.models.state import RecurrentState


class ConditionalDecoder(RecurrentDecoder):
    """Two transitions around the attention: the first reads the token and gives the query, the other reads the context.

    s'_t = GRU₁(W E y_{t−1}, s_{t−1})
    c_t = attend(s'_t)
    s_t = GRU₂(C c_t, s'_t)
    features_t = tanh(U_o s_t + V_o E y_{t−1} + C_o c_t)
    """

    name = "conditional"
    formula = (
        "s' = GRU₁(y_{t−1}, s_{t−1});  c_t = attend(s');  s_t = GRU₂(c_t, s');  tanh(U_o s_t + V_o y_{t−1} + C_o c_t)"
    )
    paper = "Sennrich et al. 2017 (Nematus); Firat and Cho 2016"
    when = "The strongest of the recurrent decoders on small corpora; further layers are above both transitions."

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__(config, memory_width, table, positions, extra_width=0)
        settings, num_features = config.decoder, config.embedding.width  # F
        self.second = RecurrentLayer(self.context_width, 0, self.width, settings.cell, settings.layer_norm)  # GRU₂
        self.state_to_readout = FastLinear(self.width, num_features)  # U_o
        self.token_to_readout = FastLinear(config.embedding.width, num_features, bias=False)  # V_o
        self.context_to_readout = FastLinear(self.context_width, num_features, bias=False)  # C_o
        self.make_output(num_features)

    def context_matrices(self) -> ContextMatrices:
        return ContextMatrices(recurrence=self.second.input, readout=self.context_to_readout)  # C, C_o

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        mask = state.masks[0] if state.masks else None
        between = self.stack.lowest.step(token.prepared, state.hidden[0], mask)  # s'_t
        attended = source.attend(between[0], state)
        lowest = self.second.step(self.second.input_gates_of(attended.to_recurrence), between, mask)  # reads C c_t
        next_state = state.next(self.stack.step_above(lowest, state.hidden, state.masks), attended)  # s_t
        return Transition(next_state, output_state=next_state.top, attended=attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        assert projected_context is not None, "this decoder always attends"
        units = self.state_to_readout(output_state) + self.token_to_readout(embedded) + projected_context  # (…, F)
        return self.dropout(torch.tanh(units))
