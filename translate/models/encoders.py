"""What reads the source: embeddings (B, S, E) in, memory (B, S, D) and final states (B, D) out."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import Function

from translate.config import EncoderConfig
from translate.models.attention import masked_softmax
from translate.models.dropout import dropout
from translate.models.loops import Product
from translate.models.recurrence import Layer


class Encoder(nn.Module):
    """A recurrent reader. Padding never enters a state: each direction starts at a real token and ends at one."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]
    directions: ClassVar[int]
    cell: ClassVar[str]

    def __init__(self, input_width: int, config: EncoderConfig) -> None:
        super().__init__()
        self.output_width = config.width * self.directions
        widths = [input_width] + [self.output_width] * (config.layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(Layer(width, 0, config.width, self.cell, config.layer_norm) for _ in range(self.directions))
            for width in widths
        )
        self.dropout, self.variational = config.dropout, config.variational
        self.residual, self.reverse = config.residual, config.reverse
        self.self_attention = SelfAttention(self.output_width) if config.self_attention else None

    def forward(self, embedded: Tensor, valid: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """embedded (B, S, E), valid (B, S), lengths (B,) on the CPU -> memory (B, S, D), final states (B, D)."""
        reverse = _reversal(lengths.to(embedded.device), embedded.size(1))  # (B · S,)
        memory, states = embedded, list[Tensor]()
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, nn.ModuleList)
            states = [
                self._read(direction, memory, reverse if backward else None)
                for direction, backward in zip(layer, self._backwards(), strict=True)
            ]
            written = torch.cat(states, dim=-1)  # (B, S, D)
            memory = self._drop(memory + written if self.residual and index else written)
        rows = torch.arange(embedded.size(0), device=embedded.device)
        last = (lengths.to(embedded.device) - 1).clamp(min=0)  # (B,)
        ends = [
            direction[:, 0] if backward else direction[rows, last]  # (B, width)
            for direction, backward in zip(states, self._backwards(), strict=True)
        ]
        if self.self_attention is not None:
            memory = self.self_attention(memory, valid)
        return memory * valid.unsqueeze(-1), torch.cat(ends, dim=-1)

    def _backwards(self) -> tuple[bool, ...]:
        """For each direction whether it reads from the end."""
        return (False, True) if self.directions == 2 else (self.reverse,)

    def _read(self, layer: nn.Module, memory: Tensor, reverse: Tensor | None) -> Tensor:
        """One direction: (B, S, W) -> (B, S, width), each state at the position it has just read."""
        assert isinstance(layer, Layer)
        inputs = memory if reverse is None else _turned(memory, reverse)
        mask = None
        if self.variational and self.training and self.dropout:
            mask = dropout(memory.new_ones(memory.size(0), layer.width), self.dropout)  # (B, width)
        states = layer.unroll(inputs, layer.zeros(memory), mask)
        return states if reverse is None else _turned(states, reverse)

    def _drop(self, states: Tensor) -> Tensor:
        """Dropout on (B, S, W): variational, the same units are dropped at all positions of a sentence."""
        if not self.variational:
            return dropout(states, self.dropout, self.training)
        return states * dropout(torch.ones_like(states[:, :1]), self.dropout, self.training)


class SelfAttention(nn.Module):
    """One residual layer in which the positions of the source look at each other (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = Product(width, 3 * width, bias=False)
        self.out = Product(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, memory: Tensor, valid: Tensor) -> Tensor:
        """norm(m + W softmax(q kᵀ / √d) v): (B, S, D) -> (B, S, D)."""
        query, key, value = self.project(memory).chunk(3, dim=-1)  # (B, S, D) each
        scores = torch.bmm(query, key.transpose(1, 2)) * query.size(-1) ** -0.5  # (B, S, S)
        weights = masked_softmax(scores, valid.unsqueeze(1))  # (B, S, S)
        found: Tensor = self.norm(memory + self.out(torch.bmm(weights.to(value.dtype), value)))
        return found


class GRUEncoder(Encoder):
    """Reads from left to right, or with `reverse` from right to left (Sutskever et al. 2014)."""

    formula = "h_s = GRU(x_s, h_{s−1})"
    paper = "Cho et al. 2014"
    when = "Half the cost of bigru; a position knows nothing of what follows it."
    directions, cell = 1, "gru"


class BiGRUEncoder(Encoder):
    """Reads in both directions, so that each position knows the whole sentence."""

    formula = "m_s = [→h_s; ←h_s], GRU"
    paper = "Bahdanau et al. 2015, section 3.2"
    when = "The default for translation."
    directions, cell = 2, "gru"


class LSTMEncoder(Encoder):
    """Reads from left to right with a cell beside the state, or with `reverse` from right to left."""

    formula = "h_s, c_s = LSTM(x_s, h_{s−1}, c_{s−1})"
    paper = "Sutskever et al. 2014; Hochreiter and Schmidhuber 1997"
    when = "What the papers of 2014 and 2015 used, several layers deep; a third more products than gru."
    directions, cell = 1, "lstm"


class BiLSTMEncoder(Encoder):
    """Reads in both directions with cells beside the states."""

    formula = "m_s = [→h_s; ←h_s], LSTM"
    paper = "Graves and Schmidhuber 2005"
    when = "As bigru, at a third more products; counts better over long distances."
    directions, cell = 2, "lstm"


ENCODERS: dict[str, type[Encoder]] = {
    "gru": GRUEncoder,
    "bigru": BiGRUEncoder,
    "lstm": LSTMEncoder,
    "bilstm": BiLSTMEncoder,
}


def _reversal(lengths: Tensor, size: int) -> Tensor:
    """The order (B · S) that turns the real positions of each row round and leaves padding where it is."""
    positions = torch.arange(size, device=lengths.device).unsqueeze(0)  # (1, S)
    mirrored = lengths.unsqueeze(1) - 1 - positions  # (B, S)
    rows = torch.arange(len(lengths), device=lengths.device).unsqueeze(1)  # (B, 1)
    return (rows * size + torch.where(mirrored >= 0, mirrored, positions)).flatten()


class _Turned(Function):
    """Rows in another order (N, W), one that is its own inverse: so the gradient is turned in the same way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        turned: Tensor = _Turned.apply(grad, order)  # type: ignore[no-untyped-call]
        return turned, None


def _turned(states: Tensor, reversal: Tensor) -> Tensor:
    """Each sentence of (B, S, W) read from its end."""
    flat: Tensor = _Turned.apply(states.flatten(0, 1), reversal)  # type: ignore[no-untyped-call]
    return flat.view(states.shape)


class Summary(nn.Module):
    """The vector (B, D) of the source that starts the decoder."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        """memory (B, S, D), final states (B, D), valid (B, S) -> (B, D)."""
        raise AssertionError("every summary defines its vector")


class Last(Summary):
    """The state in which each direction ended."""

    formula = "[→h_{n−1}; ←h_0]"
    paper = "Cho et al. 2014; Sutskever et al. 2014"
    when = "The default, and the usual choice for plain."

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return final


class Mean(Summary):
    """The mean over all positions."""

    formula = "Σ_s m_s / n"
    paper = "Sennrich et al. 2017 (Nematus)"
    when = "Usual with conditional; every position has a short way to the decoder."

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return memory.sum(dim=1) / valid.sum(dim=1, keepdim=True).clamp(min=1)


class Pooled(Summary):
    """A learned look over all positions."""

    formula = "Σ_s softmax_s(vᵀ tanh(W m_s)) m_s"
    paper = "Lin et al. 2017"
    when = "Where a few words tell what the sentence is about."

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.hidden = Product(width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        scores = self.v(torch.tanh(self.hidden(memory))).squeeze(-1)  # (B, S)
        weights = masked_softmax(scores, valid).to(memory.dtype)  # (B, S)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)  # (B, D)


class Zero(Summary):
    """Nothing: the decoder starts from its bias and learns of the source by attention alone."""

    formula = "0"
    paper = "none: the control"
    when = "To see what the start is worth; refused for plain."

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return torch.zeros_like(final)


SUMMARIES: dict[str, type[Summary]] = {"last": Last, "mean": Mean, "attention": Pooled, "zero": Zero}
