"""A recurrent decoder of one's own, in one file.

translate train CONFIG --plugin examples/gated_decoder.py model.decoder.kind=gated
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import ContextMatrices, SourceView
from translate.models.state import RecurrentState


class GatedDecoder(RecurrentDecoder):
    """Attends with the previous state, which also decides how much of the context enters the recurrence.

    c_t = σ(w · s_{t−1} + b) attend(s_{t−1})      Xu et al. 2015, section 4.2.1
    s_t = GRU(W E y_{t−1} + C c_t, s_{t−1})
    features_t = tanh(U_o s_t + V_o E y_{t−1})
    """

    name = "gated"
    formula = "c_t = σ(w · s_{t−1} + b) attend(s_{t−1});  s_t = GRU([y_{t−1}; c_t], s_{t−1});  tanh(U s_t + V y_{t−1})"
    paper = "Xu et al. 2015, section 4.2.1, for captions of images"
    when = "Where some target words need nothing of the source."

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__(config, memory_width, table, positions)
        self.gate = nn.Linear(self.width, 1)  # w, b
        self.state_to_readout = nn.Linear(self.width, self.width)  # U_o
        self.token_to_readout = nn.Linear(config.embedding.width, self.width, bias=False)  # V_o
        self.make_output(self.width)

    def context_matrices(self) -> ContextMatrices:
        return ContextMatrices(recurrence=self.stack.lowest.extra, readout=None)  # C

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        attended = source.attend(state.top, state)
        share = torch.sigmoid(self.gate(state.top))  # (B, 1)
        gate_inputs = self.stack.lowest.add_extra(token.prepared, share * attended.to_recurrence)  # W E y_{t−1} + C c_t
        next_state = state.next(self.stack.step(gate_inputs, state.hidden, state.masks), attended)
        return Transition(next_state, output_state=next_state.top, attended=attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        return self.dropout(torch.tanh(self.state_to_readout(output_state) + self.token_to_readout(embedded)))
