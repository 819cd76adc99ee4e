"""Luong, Pham and Manning 2015: Effective approaches to attention-based neural machine translation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import SourceView
from translate.models.state import Decoded, EncodedSource, RecurrentState


class LuongDecoder(RecurrentDecoder):
    """Attends with the state after the step: an attentional vector predicts, and can be fed to the next step.

    s_t = GRU([E y_{t−1}; ĥ_{t−1}], s_{t−1})        section 3.3, with input_feeding
    c_t = attend(s_t)                               eq. 7-8
    ĥ_t = tanh(W_c [c_t; s_t])                      eq. 5
    """

    name = "luong"
    formula = "s_t = GRU([y_{t−1}; ĥ_{t−1}], s_{t−1});  c_t = attend(s_t);  ĥ_t = tanh(W [c_t; s_t])"
    paper = "Luong et al. 2015, eq. 5 and section 3.3"
    when = "Without input feeding it trains without a loop, the fastest; with it, a step knows the previous context."
    supports = (*RecurrentDecoder.supports, "input_feeding")

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        fed_width = config.decoder.width if config.decoder.input_feeding else 0
        super().__init__(config, memory_width, table, positions, extra_width=fed_width)
        self.fed_width = fed_width
        self.combine = FastLinear(self.context_width + self.width, self.width, bias=False)  # W_c
        self.make_output(self.width)

    def start(self, source: EncodedSource) -> RecurrentState:
        state = super().start(source)
        return replace(state, fed=state.top.new_zeros(source.tokens.size(0), self.fed_width))

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        gate_inputs, lowest = token.prepared, self.stack.lowest
        if lowest.extra is not None:
            gate_inputs = lowest.add_extra(gate_inputs, lowest.extra(state.fed))  # (B, gates · H)
        hidden = self.stack.step(gate_inputs, state.hidden, state.masks)  # s_t
        top = hidden[-1][0]
        attended = source.attend(top, state)
        vector = self._vector(attended.to_recurrence, top)  # ĥ_t
        return Transition(state.next(hidden, attended, fed=vector[:, : self.fed_width]), vector, attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        return self.dropout(output_state)

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        """Without input feeding and coverage, no step needs the previous step's weights, so no loop is needed."""
        assert self.attention is not None
        if self.fed_width or self.attention.covered is not None:
            return super().forward(tgt_in, source)
        state = self.start(source)
        states = self.stack.unroll(self.embed(tgt_in), state.hidden, state.masks)  # (B, T, H)
        steps = torch.arange(tgt_in.size(1), device=tgt_in.device).expand(tgt_in.shape)  # (B, T)
        context, weights, loss_terms = self.attention(states, steps, source)
        return Decoded(self.dropout(self._vector(context, states)), weights, loss_terms)

    def _vector(self, context: Tensor, state: Tensor) -> Tensor:
        """ĥ = tanh(W_c [c; s]): (…, C), (…, H) -> (…, H)."""
        return torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
