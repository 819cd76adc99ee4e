"""Cho et al. 2014: Learning phrase representations using RNN encoder-decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import SourceView
from translate.models.state import Decoded, EncodedSource, RecurrentState


class PlainDecoder(RecurrentDecoder):
    """No attention: one fixed vector represents the whole sentence.

    s_t = GRU([E y_{t−1}; c], s_{t−1}) with c the summary of the source
    features_t = tanh(W [c; s_t])
    """

    name = "plain"
    formula = "s_t = GRU([y_{t−1}; c], s_{t−1});  tanh(W [c; s_t]),  c the summary of the source"
    paper = "Cho et al. 2014"
    when = "To show what attention contributes: it fails on long sentences."
    attends = False

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__(config, memory_width, table, positions)
        self.combine = FastLinear(self.context_width + self.width, self.width, bias=False)  # W
        self.make_output(self.width)

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        lowest = self.stack.lowest
        assert lowest.extra is not None
        gate_inputs = lowest.add_extra(token.prepared, lowest.extra(source.summary))  # (B, gates · H)
        next_state = state.next(self.stack.step(gate_inputs, state.hidden, state.masks))
        return Transition(next_state, output_state=self._combined(source.summary, next_state.top), attended=None)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        return self.dropout(output_state)

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        """All inputs are known beforehand, so no loop is needed."""
        state = self.start(source)
        summary = source.summary.unsqueeze(1).expand(-1, tgt_in.size(1), -1)  # (B, T, D)
        inputs = torch.cat([self.embed(tgt_in), summary.to(self.bridge.weight.dtype)], dim=-1)  # (B, T, E + D)
        states = self.stack.unroll(inputs, state.hidden, state.masks)  # (B, T, H)
        return Decoded(self.dropout(self._combined(summary, states)), None)

    def _combined(self, summary: Tensor, states: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([summary, states], dim=-1)))  # (…, H)
