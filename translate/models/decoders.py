"""What writes the target: `step` for search, `forward` for training under teacher forcing, `output` for both.

In evaluation mode `forward` and the chain of `step` give the same features, weights and states.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate.config import ModelConfig
from translate.models.attention import Attention
from translate.models.recurrence import GRUStack
from translate.models.state import Decoded, EncodedSource, SourceCache, State


class TokenEmbedding(nn.Module):
    """Vectors of tokens, with dropout."""

    def __init__(self, table: nn.Embedding, dropout: float) -> None:
        super().__init__()
        self.table = table
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.table(tokens))  # (…, E)


class OutputLayer(nn.Module):
    """Features (…, F) -> log probabilities (…, V) in float32; the matrix may be the target embeddings'."""

    def __init__(self, width: int, table: nn.Embedding, tied: bool) -> None:
        super().__init__()
        vocabulary, embedding_width = table.weight.shape
        self.weight = table.weight if tied else nn.Parameter(torch.empty(vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.fit = nn.Linear(width, embedding_width, bias=False) if tied and width != embedding_width else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        logits = F.linear(self.fit(features), self.weight, self.bias)
        return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class Decoder(nn.Module):
    """What all decoders share: how they start, and how features become probabilities."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]
    extra_width: int  # of what enters the first layer beside the embedding
    attention: Attention | None

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding) -> None:
        super().__init__()
        width, layers = config.decoder.width, config.decoder.layers
        self.embed = TokenEmbedding(table, config.embedding.dropout)
        self.attention = None
        self.bridge = nn.Linear(memory_width, width * layers)
        self.dropout = nn.Dropout(config.decoder.dropout)
        self.extra_width = self._extra_width(config, memory_width)
        self.stack = GRUStack(config.embedding.width, self.extra_width, width, layers, config.decoder.dropout)
        self._build(config, memory_width)
        self.out = OutputLayer(self._feature_width(config), table, tied=config.embedding.tied != "none")

    def _extra_width(self, config: ModelConfig, memory_width: int) -> int:
        return memory_width

    def _feature_width(self, config: ModelConfig) -> int:
        return config.decoder.width

    def _build(self, config: ModelConfig, memory_width: int) -> None:
        raise AssertionError("every decoder builds its own parts")

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache | None:
        """What attention can compute from the source alone."""
        return None if self.attention is None else self.attention.prepare(memory, valid)

    def start(self, source: EncodedSource) -> State:
        """s_0 = tanh(W summary), one part for each layer (Bahdanau et al. 2015, appendix A.2.2)."""
        hidden = torch.tanh(self.bridge(source.summary))  # (B, L·H)
        return State(hidden=tuple(hidden.chunk(self.stack.num_layers, dim=-1)))

    def step(self, token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        """token (B,) -> features (B, F), the next state, weights (B, S)."""
        raise AssertionError("every decoder defines its step")

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        """tgt_in (B, T) -> features (B, T, F) and weights (B, T, S)."""
        raise AssertionError("every decoder defines its forward")

    def output(self, features: Tensor, weights: Tensor | None, source: EncodedSource) -> Tensor:
        """The one place that turns features (N, F) into log probabilities (N, V), in float32."""
        return self.out(features)


class BahdanauDecoder(Decoder):
    """Looks before it steps: the context enters the recurrence, and a deep maxout layer reads it all."""

    formula = "c_t = attend(s_{t−1});  s_t = GRU([y_{t−1}; c_t], s_{t−1});  maxout(U s_t + V y_{t−1} + C c_t)"
    paper = "Bahdanau et al. 2015"
    when = "The default: the context steers the state itself, and its alignments are sharp."
    attention: Attention

    def _feature_width(self, config: ModelConfig) -> int:
        return config.embedding.width

    def _build(self, config: ModelConfig, memory_width: int) -> None:
        width, features = config.decoder.width, config.embedding.width
        self.attention = Attention(config.attention, width, memory_width)
        self.read_state = nn.Linear(width, 2 * features)
        self.read_token = nn.Linear(config.embedding.width, 2 * features, bias=False)
        self.read_context = nn.Linear(memory_width, 2 * features, bias=False)

    def step(self, token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        embedded = self.embed(token)  # (B, E)
        hidden, context, weights = self._transition(self.stack.hoist(embedded), state.hidden, source)
        return self._readout(hidden[-1], embedded, context), State(hidden), weights

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        embedded = self.embed(tgt_in)  # (B, T, E)
        gates = self.stack.hoist(embedded)  # (B, T, 3H)
        hidden = self.start(source).hidden
        tops, contexts, all_weights = [], [], []
        for gates_t in gates.unbind(dim=1):
            hidden, context, weights = self._transition(gates_t, hidden, source)
            tops.append(hidden[-1])
            contexts.append(context)
            all_weights.append(weights)
        features = self._readout(torch.stack(tops, dim=1), embedded, torch.stack(contexts, dim=1))  # (B, T, F)
        return Decoded(features, torch.stack(all_weights, dim=1))

    def _transition(
        self, gates: Tensor, hidden: tuple[Tensor, ...], source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        context, weights = self.attention(hidden[-1].unsqueeze(1), source)  # (B, 1, D), (B, 1, S)
        context = context.squeeze(1)  # (B, D)
        return self.stack.step(gates, context, hidden), context, weights.squeeze(1)

    def _readout(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Appendix A.2.2: pairs of units compete, the greater one goes on; (…, 2F) -> (…, F)."""
        units = self.read_state(state) + self.read_token(embedded) + self.read_context(context)
        return self.dropout(units.unflatten(-1, (-1, 2)).amax(dim=-1))


class LuongDecoder(Decoder):
    """Steps before it looks: an attentional vector of context and state predicts, and may be fed to the next step."""

    formula = "s_t = GRU([y_{t−1}; ĥ_{t−1}], s_{t−1});  c_t = attend(s_t);  ĥ_t = tanh(W [c_t; s_t])"
    paper = "Luong et al. 2015, eq. 5 and section 3.3"
    when = "Without input feeding it trains without a loop, the fastest; with it, it knows where it looked before."
    attention: Attention

    def _extra_width(self, config: ModelConfig, memory_width: int) -> int:
        return config.decoder.width if config.decoder.input_feeding else 0

    def _build(self, config: ModelConfig, memory_width: int) -> None:
        self.attention = Attention(config.attention, config.decoder.width, memory_width)
        self.combine = nn.Linear(memory_width + config.decoder.width, config.decoder.width, bias=False)

    def start(self, source: EncodedSource) -> State:
        state = super().start(source)
        return State(state.hidden, fed=state.hidden[-1].new_zeros(source.tokens.size(0), self.extra_width))

    def step(self, token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        gates = self.stack.hoist(self.embed(token))  # (B, 3H)
        hidden, vector, weights = self._transition(gates, state, source)
        return self.dropout(vector), self._next(hidden, vector), weights

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        embedded = self.embed(tgt_in)  # (B, T, E)
        state = self.start(source)
        if not self.extra_width:
            tops = self.stack.unroll(embedded, state.hidden)  # (B, T, H)
            vectors, weights = self._attend(tops, source)  # (B, T, H), (B, T, S)
            return Decoded(self.dropout(vectors), weights)
        collected, all_weights = [], []
        for gates in self.stack.hoist(embedded).unbind(dim=1):
            hidden, vector, weights = self._transition(gates, state, source)
            state = self._next(hidden, vector)
            collected.append(vector)
            all_weights.append(weights)
        return Decoded(self.dropout(torch.stack(collected, dim=1)), torch.stack(all_weights, dim=1))

    def _transition(
        self, gates: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        assert state.fed is not None
        hidden = self.stack.step(gates, state.fed, state.hidden)
        vector, weights = self._attend(hidden[-1].unsqueeze(1), source)  # (B, 1, H), (B, 1, S)
        return hidden, vector.squeeze(1), weights.squeeze(1)

    def _attend(self, states: Tensor, source: EncodedSource) -> tuple[Tensor, Tensor]:
        context, weights = self.attention(states, source)  # (B, T, D), (B, T, S)
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1))), weights

    def _next(self, hidden: tuple[Tensor, ...], vector: Tensor) -> State:
        return State(hidden, fed=vector[:, : self.extra_width])


class PlainDecoder(Decoder):
    """No attention: one fixed vector has to hold the whole sentence."""

    formula = "s_t = GRU([y_{t−1}; c], s_{t−1});  tanh(W [c; s_t]),  c the summary of the source"
    paper = "Cho et al. 2014"
    when = "To see what attention is good for: it fails on long sentences."

    def _build(self, config: ModelConfig, memory_width: int) -> None:
        self.combine = nn.Linear(memory_width + config.decoder.width, config.decoder.width, bias=False)

    def step(self, token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        hidden = self.stack.step(self.stack.hoist(self.embed(token)), source.summary, state.hidden)
        return self._readout(hidden[-1], source.summary), State(hidden), None

    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        summary = source.summary.unsqueeze(1).expand(-1, tgt_in.size(1), -1)  # (B, T, D)
        inputs = torch.cat([self.embed(tgt_in), summary.to(self.bridge.weight.dtype)], dim=-1)  # (B, T, E + D)
        tops = self.stack.unroll(inputs, self.start(source).hidden)  # (B, T, H)
        return Decoded(self._readout(tops, summary), None)

    def _readout(self, states: Tensor, summary: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.combine(torch.cat([summary, states], dim=-1))))


DECODERS: dict[str, type[Decoder]] = {"bahdanau": BahdanauDecoder, "luong": LuongDecoder, "plain": PlainDecoder}
