"""What reads the source: embeddings (B, S, E) in, memory (B, S, D) and final states (B, D) out."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.config import EncoderConfig


class Encoder(nn.Module):
    """A recurrent reader. Padding never enters a state: each direction starts at a real token and ends at one."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]
    directions: ClassVar[int]

    def __init__(self, input_width: int, config: EncoderConfig) -> None:
        super().__init__()
        self.output_width = config.width * self.directions
        widths = [input_width] + [self.output_width] * (config.layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.GRU(width, config.width, batch_first=True) for _ in range(self.directions))
            for width in widths
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedded: Tensor, valid: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """embedded (B, S, E), valid (B, S), lengths (B,) on the CPU -> memory (B, S, D), final states (B, D)."""
        reverse = _reversal(lengths.to(embedded.device), embedded.size(1))  # (B, S)
        memory, finals = embedded, []
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleList)
            states = [layer[0](memory)[0]]  # (B, S, width)
            if self.directions == 2:
                backward, _ = layer[1](_gather(memory, reverse))
                states.append(_gather(backward, reverse))
            memory = self.dropout(torch.cat(states, dim=-1))  # (B, S, D)
            finals = states
        rows = torch.arange(embedded.size(0), device=embedded.device)
        last = finals[0][rows, (lengths.to(embedded.device) - 1).clamp(min=0)]  # (B, width)
        final = torch.cat([last] + [states[:, 0] for states in finals[1:]], dim=-1)  # (B, D)
        return memory * valid.unsqueeze(-1), final


class GRUEncoder(Encoder):
    """Reads from left to right."""

    formula = "h_s = GRU(x_s, h_{s−1})"
    paper = "Cho et al. 2014"
    when = "Half the cost of bigru; a position knows nothing of what follows it."
    directions = 1


class BiGRUEncoder(Encoder):
    """Reads in both directions, so that each position knows the whole sentence."""

    formula = "m_s = [→h_s; ←h_s]"
    paper = "Bahdanau et al. 2015, section 3.2"
    when = "The default for translation."
    directions = 2


ENCODERS: dict[str, type[Encoder]] = {"gru": GRUEncoder, "bigru": BiGRUEncoder}


def _reversal(lengths: Tensor, size: int) -> Tensor:
    """For each row the index that turns its real positions round and leaves padding where it is: (B, S)."""
    positions = torch.arange(size, device=lengths.device).unsqueeze(0)  # (1, S)
    mirrored = lengths.unsqueeze(1) - 1 - positions  # (B, S)
    return torch.where(mirrored >= 0, mirrored, positions)


def _gather(states: Tensor, index: Tensor) -> Tensor:
    return states.gather(1, index.unsqueeze(-1).expand(-1, -1, states.size(-1)))


def _last(memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
    return final


def _mean(memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
    return memory.sum(dim=1) / valid.sum(dim=1, keepdim=True).clamp(min=1)


def _zero(memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
    return torch.zeros_like(final)


Summary = Callable[[Tensor, Tensor, Tensor], Tensor]
# The vector (B, D) that starts the decoder: the last states, the mean of the memory (Sennrich et al. 2017), nothing.
SUMMARIES: dict[str, Summary] = {"last": _last, "mean": _mean, "zero": _zero}
