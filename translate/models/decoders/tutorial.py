"""Robertson 2017: PyTorch's tutorial on translation with a sequence-to-sequence network and attention."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import ContextMatrices, SourceView
from translate.models.state import RecurrentState


class TutorialDecoder(RecurrentDecoder):
    """Token and state form the query; the recurrence reads a combination of token and context.

    c_t = attend([E y_{t−1}; s_{t−1}])
    s_t = GRU(relu(W_y E y_{t−1} + W_c c_t), s_{t−1})
    features_t = s_t
    """

    name = "tutorial"
    formula = "c_t = attend([y_{t−1}; s_{t−1}]);  s_t = GRU(relu(W [y_{t−1}; c_t]), s_{t−1});  softmax(U s_t)"
    paper = "Robertson 2017, PyTorch's sequence-to-sequence tutorial"
    when = "To repeat the tutorial: with train.teacher_forcing.ratio=0.5, unit=batch. Its only score is location."
    scores = ("location",)
    reasons: ClassVar = {"score": "scores positions, not states"}

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        embedding, width = config.embedding.width, config.decoder.width
        super().__init__(
            config, memory_width, table, positions, query_width=embedding + width, input_width=width, extra_width=0
        )
        self.combine_token = FastLinear(embedding, width)  # W_y
        self.combine_context = FastLinear(self.context_width, width, bias=False)  # W_c
        self.make_output(width)

    def context_matrices(self) -> ContextMatrices:
        return ContextMatrices(recurrence=self.combine_context, readout=None)

    def from_token(self, embedded: Tensor) -> Tensor:
        return self.combine_token(embedded)  # (…, H)

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        query = torch.cat([token.embedded, state.top], dim=-1)  # (B, E + H)
        attended = source.attend(query, state)
        combined = torch.relu(token.prepared + attended.to_recurrence)  # (B, H)
        hidden = self.stack.step(self.stack.lowest.input_gates(combined), state.hidden, state.masks)  # s_t
        next_state = state.next(hidden, attended)
        return Transition(next_state, output_state=next_state.top, attended=attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        return self.dropout(output_state)
