"""An encoder of one's own that is not recurrent, in one file.

translate train CONFIG --plugin examples/window_encoder.py model.encoder.kind=window
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate.config import EncoderConfig
from translate.models.encoders import Encoder
from translate.models.layers import Dropout


class WindowEncoder(Encoder):
    """Each position reads itself and its two neighbours, and nothing else of the sentence."""

    name = "window"
    formula = "m_s = tanh(W [x_{s−1}; x_s; x_{s+1}])"
    paper = "none: an example of a plugin"
    when = "To see how much a translation needs beyond the neighbours of a word."

    def __init__(self, input_width: int, config: EncoderConfig) -> None:
        super().__init__(input_width, config)
        self.window = nn.Linear(3 * input_width, self.output_width)
        self.dropout = Dropout(config.dropout)

    def forward(self, embedded: Tensor, valid: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        words = embedded * valid.unsqueeze(-1)  # (B, S, E), zero at padding as beyond the ends
        before, after = F.pad(words, (0, 0, 1, -1)), F.pad(words, (0, 0, -1, 1))  # (B, S, E)
        memory = torch.tanh(self.window(torch.cat([before, words, after], dim=-1)))  # (B, S, D)
        memory = self.dropout(memory) * valid.unsqueeze(-1)
        return memory, memory.sum(dim=1) / lengths.to(memory).clamp(min=1).unsqueeze(1)  # the mean as final state
