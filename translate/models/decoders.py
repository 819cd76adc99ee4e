"""What writes the target: `step` for search, `forward` for training under teacher forcing, `output` for both.

In evaluation mode `forward` and the chain of `step` give the same features, weights and states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.config import ModelConfig
from translate.models.attention import Attention
from translate.models.dropout import Dropout, dropout
from translate.models.layout import Laid
from translate.models.loops import Product, cached_slices, cut, one_gradient
from translate.models.recurrence import Hidden, Layer, Stack
from translate.models.state import Decoded, EncodedSource, SourceCache, State
from translate.text.tokenizer import EOS


class TokenEmbedding(nn.Module):
    """Vectors of tokens, with dropout on their entries and on whole words."""

    def __init__(self, table: nn.Embedding, dropout: float, word_dropout: float) -> None:
        super().__init__()
        self.table = table
        self.dropout = Dropout(dropout)
        self.word_dropout = word_dropout

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.dropout(self.table(tokens))  # (…, E)
        if not self.training or not self.word_dropout:
            return embedded
        kept = dropout(torch.ones_like(embedded[..., :1]), self.word_dropout)  # (…, 1)
        return embedded * kept


class OutputLayer(nn.Module):
    """Features (…, F) -> log probabilities (…, V) in float32; the matrix may be the target embeddings'."""

    def __init__(self, width: int, table: nn.Embedding, tied: bool) -> None:
        super().__init__()
        vocabulary, embedding_width = table.weight.shape
        self.weight = table.weight if tied else nn.Parameter(torch.empty(vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.laid: Laid | None = None  # the matrix, once it no longer changes
        self.fit = Product(width, embedding_width, bias=False) if tied and width != embedding_width else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        features = self.fit(features)
        if self._can_overwrite(features):
            return self._in_place(features)
        logits = F.linear(features, self.weight, self.bias)
        return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def settle(self) -> None:
        """Take the matrix to be what it will stay."""
        self.laid = Laid.fixed(self.weight)

    def product(self, features: Tensor) -> Tensor:
        """(…, F) -> (…, V), without the bias."""
        if self.laid is None or not self.laid.is_usable:
            return features @ self.weight.t()
        return self.laid(features.reshape(-1, features.size(-1))).view(*features.shape[:-1], -1)

    def _can_overwrite(self, features: Tensor) -> bool:
        """Whether nobody asks for a gradient and the product already has the precision of the result."""
        precise = self.weight.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
        return precise and features.device.type == "cpu" and not torch.is_grad_enabled()

    def _in_place(self, features: Tensor) -> Tensor:
        """The same with one pass through memory after the product: a large table leaves the cache between passes."""
        logits = self.product(features)  # (…, V)
        rows = logits.view(-1, logits.size(-1))
        for some in cached_slices(len(rows), rows.size(1), rows.device):
            part = rows[some].add_(self.bias)
            torch.log_softmax(part, dim=-1, out=part)
        return logits


class CopyGate(nn.Module):
    """Mixes the vocabulary with a pointer into the source: p(y) = g p_vocabulary(y) + (1 − g) Σ_{s: x_s = y} α_s.

    See et al. 2017, eq. 8-9, over one vocabulary for both sides. What attention gives to `</s>`, or to nothing where
    its weights sum to less than one, goes to the vocabulary too (the sentinel of Merity et al. 2017).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 1)

    def initialise(self) -> None:
        """At first the vocabulary speaks: the pointer has to earn its share."""
        nn.init.constant_(self.gate.bias, 2.0)

    def forward(self, features: Tensor, log_probs: Tensor, weights: Tensor, src: Tensor, words: Tensor) -> Tensor:
        """features (N, F), log_probs (N, V), weights and src (N, S), which of it are words (N, S) -> (N, V)."""
        gate = self.gate(features).to(log_probs.dtype)  # (N, 1)
        shares = torch.sigmoid(-gate) * weights.to(log_probs.dtype) * words  # (N, S)
        copied = torch.zeros_like(log_probs).scatter_add(1, src, shares)  # (N, V)
        nowhere = (1.0 - (weights * words).sum(dim=-1, keepdim=True)).clamp(min=0.0).to(log_probs.dtype)  # (N, 1)
        rest = torch.sigmoid(gate) + torch.sigmoid(-gate) * nowhere  # (N, 1)
        tiny = torch.finfo(log_probs.dtype).tiny
        return torch.logaddexp(rest.clamp(min=tiny).log() + log_probs, copied.clamp(min=tiny).log())


_LEAST_LEAVING = 8  # rows that are worth a smaller batch
_FEW = 8  # rows whose products take the time that it takes to read the matrix


class Steps:
    """Which rows of a batch take part in each step of a loop over (B, T) tokens: the first so many.

    Rows leave by eights, and as few as make the rest a multiple of four: products run faster on those.
    """

    def __init__(self, tokens: Tensor, lengths: Tensor | None) -> None:
        self.shape = tokens.shape
        num_rows, num_steps = tokens.shape
        self.rows = [num_rows] * num_steps
        if lengths is not None:
            later = lengths.flip(0).cummax(dim=0).values  # the longest of the last 1, 2, … rows
            needed = (later.unsqueeze(0) > torch.arange(num_steps).unsqueeze(1)).sum(dim=1)  # (T,)
            for step, count in enumerate(((needed + 3) // 4 * 4).tolist()):
                before = self.rows[step - 1] if step else num_rows
                self.rows[step] = count if count <= before - _LEAST_LEAVING else before
        self._places: Tensor | None = None  # (N,), in the flat (T, B) table; None where no row leaves
        if sum(self.rows) < num_rows * num_steps:
            places = torch.cat([torch.arange(count) + step * num_rows for step, count in enumerate(self.rows)])
            self._places = places.to(tokens.device, non_blocking=True)

    def flat(self, given: Tensor) -> Tensor:
        """(B, T, …) -> (N, …), one step after the other."""
        flat = given.transpose(0, 1).flatten(0, 1)
        return flat if self._places is None else flat.index_select(0, self._places)

    def padded(self, found: Tensor) -> Tensor:
        """(N, …) -> (B, T, …), zero where a row has left."""
        num_rows, num_steps = self.shape
        if self._places is not None:
            found = found.new_zeros(num_rows * num_steps, *found.shape[1:]).index_copy(0, self._places, found)
        return found.unflatten(0, (num_steps, num_rows)).transpose(0, 1)


class Decoder(nn.Module):
    """What all decoders share: how they start, loop and look, and how features become probabilities.

    A decoder is a `_transition`, which takes one step and gives what the readout needs of it, and a `_readout`, which
    turns that into features for one step or for all of them.
    """

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]
    extra_width: int  # of what enters the first layer beside the embedding
    attention: Attention | None
    read_context: Product  # of decoders that have a `_reader`

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__()
        settings = config.decoder
        self.config, self.memory_width, self.width = config, memory_width, settings.width
        self.embed = TokenEmbedding(table, config.embedding.dropout, settings.word_dropout)
        self.dropout = Dropout(settings.dropout)
        self.hoisted: Tensor | None = None  # (V, gates · H), what `_hoist` makes of every token, once weights are fixed
        self.attention = self._attention(positions)
        self.context_width = memory_width if self.attention is None else self.attention.context_width
        self.extra_width = self._extra_width()
        self.stack = Stack(
            self._input_width(), self.extra_width, self.width, settings.layers, settings.dropout, settings.cell,
            settings.layer_norm,
        )  # fmt: skip
        self.bridge = Product(memory_width, self.width * self.stack.num_tensors)
        self._build()
        self.feature_width = self._feature_width()
        self.out = OutputLayer(self.feature_width, table, tied=config.embedding.tied != "none")
        self.copy = CopyGate(self.feature_width) if settings.copy else None

    def _attention(self, positions: int) -> Attention | None:
        return Attention(self.config.attention, self._query_width(), self.memory_width, positions)

    def _query_width(self) -> int:
        return self.width

    def _input_width(self) -> int:
        return self.config.embedding.width

    def _extra_width(self) -> int:
        return self.context_width

    def _feature_width(self) -> int:
        return self.width

    def _build(self) -> None:
        """The parts that only this decoder has."""

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache | None:
        """What attention can compute from the source alone."""
        return None if self.attention is None else self.attention.prepare(memory, valid)

    def start(self, source: EncodedSource) -> State:
        """s_0 = tanh(W summary), one part for each layer (Bahdanau et al. 2015, appendix A.2.2)."""
        hidden = torch.tanh(self.bridge(source.summary))  # (B, L·H)
        coverage = None
        if self.attention is not None and self.attention.covered is not None:
            coverage = torch.zeros_like(source.tokens, dtype=torch.promote_types(hidden.dtype, torch.float32))
        return State(
            hidden=hidden.chunk(self.stack.num_tensors, dim=-1),
            position=torch.zeros_like(source.tokens[:, 0]),
            coverage=coverage,
            masks=self.stack.masks(hidden) if self.config.decoder.variational else (),
        )

    def step(self, token: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        """token (B,) -> features (B, F), the next state, weights (B, S)."""
        embedded = self.embed(token)  # (B, E)
        gates = self._hoist(embedded) if self.hoisted is None else self.hoisted.index_select(0, token)
        found, state, weights = self._transition(gates, embedded, state, source)
        return self._readout(embedded, *found, read=is_read(source)), state, weights

    def forward(self, tgt_in: Tensor, source: EncodedSource, lengths: Tensor | None = None) -> Decoded:
        """tgt_in (B, T) -> features (B, T, F) and weights (B, T, S).

        With `lengths` (B,) on the CPU, rows leave the loop when they and all after them have ended, so it is best to
        have the longest first; what is found beyond the end of a row is of no use, and may be zero.
        """
        with one_gradient():
            return self._unrolled(Steps(tgt_in, lengths), tgt_in, source)

    def _unrolled(self, steps: Steps, tgt_in: Tensor, whole: EncodedSource) -> Decoded:
        source = self._foreseen(whole)
        embedded = self.embed(steps.flat(tgt_in))  # (N, E): step after step, at each the rows that are not done
        state = self.start(source)
        founds, all_weights, all_notes = [], [], []
        for gates, one in zip(cut(self._hoist(embedded), steps.rows), embedded.split(steps.rows), strict=True):
            if len(one) < len(source.tokens):  # gates (B, gates · H), one (B, E)
                state, source = state.first(len(one)), source.first(len(one))
            found, state, weights = self._transition(gates, one, state, source)
            founds.append(found)
            all_weights.append(weights)
            all_notes.append(state.notes)
        columns = [torch.cat(column) for column in zip(*founds, strict=True)]  # (N, …) each
        given = [one for one in all_weights if one is not None]
        looks = steps.padded(torch.cat(given)) if given else None  # (B, T, S)
        if is_read(source):
            assert looks is not None
            columns.append(steps.flat(self._read_contexts(looks, whole)))
        return Decoded(
            steps.padded(self._readout(embedded, *columns, read=is_read(source))),
            looks,
            {name: steps.padded(torch.cat([notes[name] for notes in all_notes])) for name in all_notes[0]},
        )

    def _reader(self) -> Product | None:
        """The product through which the context alone enters the recurrence, if there is one."""
        return None

    def _foreseen(self, source: EncodedSource) -> EncodedSource:
        """The source with what the recurrence will read of it, W Σ α v = Σ α (W v): one large product for many small.

        What the readout reads of the contexts is then formed for all steps at once, after the loop.
        """
        reader = self._reader()
        if reader is None or self.attention is None or not self.attention.is_one_sum:
            return source
        assert source.cache is not None
        read = reader.times(source.cache.values)  # (B, 1, S, R)
        return replace(source, cache=replace(source.cache, read=read))

    def for_steps(self, source: EncodedSource, hypotheses: int) -> EncodedSource:
        """The source for `step` alone, without what no step looks at, for so many hypotheses of each sentence.

        What recurrence and readout make of a context is summed up from what they make of the values, which is formed
        once for a sentence instead of at every step of every hypothesis. One hypothesis of each of many sentences asks
        for as many products either way, and products in 8 bits keep their own way.
        """
        source, reader = replace(source, memory=source.memory[:, :0]), self._reader()
        if source.cache is None or self.attention is None or not self.attention.is_one_sum:
            return source
        if not isinstance(reader, Product) or (hypotheses == 1 and len(source.tokens) > _FEW):
            return source
        values, readers = source.cache.values, (reader, self.read_context)
        flat = values.flatten(0, 2)  # (B · S, C): torch would else multiply sentence by sentence
        read = torch.cat([one.times(flat) for one in readers], dim=-1).view(*values.shape[:3], -1)
        return replace(source, cache=replace(source.cache, values=values[..., :0], read=read))

    def share(self, source: EncodedSource, sentences: Tensor) -> EncodedSource:
        """The source for rows that stand for these sentences (N,), ascending; copied only where each changes it."""
        if self.attention is None or self.attention.covered is not None:
            return source.select(sentences)
        return source.shared(sentences)

    def _parts(self, context: Tensor, source: EncodedSource) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What the recurrence gets of what a look has found, and what is left for the readout."""
        if not is_read(source):
            return context, (context,)
        reader = self._reader()
        assert reader is not None
        if context.size(1) == reader.out_features:  # in training: a slice would cost a pass of zeros
            return context, ()
        return context[:, : reader.out_features], (context[:, reader.out_features :],)

    def _read_contexts(self, weights: Tensor, source: EncodedSource) -> Tensor:
        """What the readout makes of the contexts of all steps: weights (B, T, S) -> (B, T, 2F) or (B, T, F)."""
        assert source.cache is not None
        read = self.read_context.times(source.cache.values.squeeze(1))  # (B, S, …)
        return torch.bmm(weights.to(read.dtype), read)

    def hoist_all(self) -> None:
        """Look up from now on what a step makes of its token alone; for weights that no longer change."""
        self.hoisted = self._hoist(self.embed.table.weight)

    def _hoist(self, embedded: Tensor) -> Tensor:
        """What of a step can be computed for all steps at once: (…, E) -> (…, gates · H)."""
        return self.stack.hoist(embedded)

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        """One step, from hoisted gates and embedding (B, E): what the readout needs, the next state, weights (B, S)."""
        raise AssertionError("every decoder defines its transition")

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        """What one or all transitions found -> features (…, F); with `read` the last has been through its matrix."""
        raise AssertionError("every decoder defines its readout")

    def _look(self, query: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor]:
        """Look once with a query (B, Q): context (B, C), the state that knows of it, weights (B, S)."""
        assert self.attention is not None
        sharing = source.sharing
        queries = query.unsqueeze(1) if sharing is None else sharing.spread(query)  # (B, K, Q)
        steps = state.position.unsqueeze(1) if sharing is None else sharing.spread(state.position)  # (B, K)
        look = self.attention(queries, steps, source, state.coverage)
        context, weights = (
            found.squeeze(1) if sharing is None else sharing.gather(found) for found in (look.context, look.weights)
        )  # (B, C), (B, S)
        notes = {name: note.squeeze(1) for name, note in look.notes.items()}
        coverage = state.coverage
        if coverage is not None:
            if self.training:
                notes["coverage"] = torch.minimum(weights, coverage).sum(dim=-1)  # (B,), See et al. 2017, eq. 12
            coverage = coverage + weights
        state = replace(state, position=state.position + 1, coverage=coverage, notes=notes)
        return context, state, weights

    def output(
        self, features: Tensor, weights: Tensor | None, source: EncodedSource, rows: Tensor | None = None
    ) -> Tensor:
        """The one place that turns features (N, F) and weights (N, S) into log probabilities (N, V), in float32.

        `rows` (N,) tells which sentence of the source each belongs to; without it, the first to the first and so on.
        """
        log_probs: Tensor = self.out(features)
        if self.copy is None:
            return log_probs
        assert weights is not None
        if rows is None and source.sharing is not None:
            rows = source.sharing.sentences
        src = source.tokens if rows is None else source.tokens[rows]  # (N, S)
        mixed: Tensor = self.copy(features, log_probs, weights, src, src > EOS)
        return mixed


def is_read(source: EncodedSource) -> bool:
    """Whether looks find what the recurrence reads instead of the context."""
    return source.cache is not None and source.cache.read is not None


class _Maxout(Function):
    """The greater of each pair of neighbours, (…, 2F) -> (…, F), with a derivative that is quick to form."""

    @staticmethod
    def forward(ctx: Any, units: Tensor) -> Tensor:
        first, second = units.unflatten(-1, (-1, 2)).unbind(dim=-1)
        ctx.save_for_backward(first >= second)
        return torch.maximum(first, second)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (won,) = ctx.saved_tensors
        grads = grad.new_empty(*grad.shape, 2)
        torch.mul(grad, won, out=grads[..., 0])
        torch.sub(grad, grads[..., 0], out=grads[..., 1])
        return grads.flatten(-2)


class BahdanauDecoder(Decoder):
    """Looks before it steps: the context enters the recurrence, and a deep maxout layer reads it all."""

    formula = "c_t = attend(s_{t−1});  s_t = GRU([y_{t−1}; c_t], s_{t−1});  maxout(U s_t + V y_{t−1} + C c_t)"
    paper = "Bahdanau et al. 2015"
    when = "The default: the context steers the state itself, and its alignments are sharp."

    def _feature_width(self) -> int:
        return self.config.embedding.width

    def _build(self) -> None:
        features = self._feature_width()
        self.read_state = Product(self.width, 2 * features)
        self.read_token = Product(self.config.embedding.width, 2 * features, bias=False)
        self.read_context = Product(self.context_width, 2 * features, bias=False)

    def _reader(self) -> Product | None:
        return self.stack.first.extra

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        context, state, weights = self._look(self.stack.top(state.hidden), state, source)  # (B, C)
        entering, left = self._parts(context, source)
        hidden = self.stack.step(gates, entering, state.hidden, state.masks, is_read(source))
        return (self.stack.top(hidden), *left), replace(state, hidden=hidden), weights

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        """Appendix A.2.2: pairs of units compete, the greater one goes on; (…, 2F) -> (…, F)."""
        states, contexts = found
        units = self.read_state(states) + self.read_token(embedded)
        units = units + (contexts if read else self.read_context(contexts))
        return self.dropout(_Maxout.apply(units))  # type: ignore[no-untyped-call]


class LuongDecoder(Decoder):
    """Steps before it looks: an attentional vector of context and state predicts, and may be fed to the next step."""

    formula = "s_t = GRU([y_{t−1}; ĥ_{t−1}], s_{t−1});  c_t = attend(s_t);  ĥ_t = tanh(W [c_t; s_t])"
    paper = "Luong et al. 2015, eq. 5 and section 3.3"
    when = "Without input feeding it trains without a loop, the fastest; with it, it knows where it looked before."

    def _extra_width(self) -> int:
        return self.width if self.config.decoder.input_feeding else 0

    def _build(self) -> None:
        self.combine = Product(self.context_width + self.width, self.width, bias=False)

    def start(self, source: EncodedSource) -> State:
        state = super().start(source)
        return replace(state, fed=state.hidden[0].new_zeros(source.tokens.size(0), self.extra_width))

    def forward(self, tgt_in: Tensor, source: EncodedSource, lengths: Tensor | None = None) -> Decoded:
        assert self.attention is not None
        if self.extra_width or self.attention.covered is not None:
            return super().forward(tgt_in, source, lengths)
        state = self.start(source)
        states = self.stack.unroll(self.embed(tgt_in), state.hidden, state.masks)  # (B, T, H)
        steps = torch.arange(tgt_in.size(1), device=tgt_in.device).expand(tgt_in.shape)  # (B, T)
        look = self.attention(states, steps, source)
        return Decoded(self.dropout(self._vector(look.context, states)), look.weights, look.notes)

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        hidden = self.stack.step(gates, state.fed, state.hidden, state.masks)
        top = self.stack.top(hidden)  # (B, H)
        context, state, weights = self._look(top, state, source)
        vector = self._vector(context, top)  # (B, H)
        return (vector,), replace(state, hidden=hidden, fed=vector[:, : self.extra_width]), weights

    def _vector(self, context: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([context, state], dim=-1)))

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        (vectors,) = found
        return self.dropout(vectors)


class ConditionalDecoder(Decoder):
    """Two transitions round the attention: one reads the word and asks, the other reads what was found."""

    formula = "s' = GRU₁(y_{t−1}, s_{t−1});  c_t = attend(s');  s_t = GRU₂(c_t, s');  tanh(U s_t + V y_{t−1} + C c_t)"
    paper = "Sennrich et al. 2017 (Nematus); Firat and Cho 2016"
    when = "The strongest of the recurrent ones on small corpora; deeper layers stand above both transitions."

    def _extra_width(self) -> int:
        return 0

    def _feature_width(self) -> int:
        return self.config.embedding.width

    def _build(self) -> None:
        settings, features = self.config.decoder, self._feature_width()
        self.second = Layer(self.context_width, 0, self.width, settings.cell, settings.layer_norm)
        self.read_state = Product(self.width, features)
        self.read_token = Product(self.config.embedding.width, features, bias=False)
        self.read_context = Product(self.context_width, features, bias=False)

    def _reader(self) -> Product | None:
        return self.second.input

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        before, mask = state.hidden, state.masks[0] if state.masks else None
        between: Hidden = self.stack.first.step(gates, None, before[:: self.stack.num_layers], mask)
        context, state, weights = self._look(between[0], state, source)  # (B, C)
        entering, left = self._parts(context, source)
        lowest = self.second.step(self.second.hoist(entering, is_read(source)), None, between, mask)
        hidden = self.stack.step_above(lowest, before, state.masks)
        return (self.stack.top(hidden), *left), replace(state, hidden=hidden), weights

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        states, contexts = found
        units = self.read_state(states) + self.read_token(embedded)
        return self.dropout(torch.tanh(units + (contexts if read else self.read_context(contexts))))


class TutorialDecoder(Decoder):
    """Word and state choose positions, and word and context together are what the recurrence reads."""

    formula = "c_t = attend([y_{t−1}; s_{t−1}]);  s_t = GRU(relu(W [y_{t−1}; c_t]), s_{t−1});  softmax(U s_t)"
    paper = "Robertson 2017, PyTorch's sequence-to-sequence tutorial"
    when = "To meet an old friend: with train.teacher_forcing.ratio=0.5, unit=batch. Its only score is location."

    def _query_width(self) -> int:
        return self.config.embedding.width + self.width

    def _input_width(self) -> int:
        return self.width

    def _extra_width(self) -> int:
        return 0

    def _build(self) -> None:
        self.combine_token = Product(self.config.embedding.width, self.width)
        self.combine_context = Product(self.context_width, self.width, bias=False)

    def _hoist(self, embedded: Tensor) -> Tensor:
        return self.combine_token(embedded)  # (…, H)

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        query = torch.cat([embedded, self.stack.top(state.hidden)], dim=-1)  # (B, E + H)
        context, state, weights = self._look(query, state, source)
        combined = torch.relu(gates + self.combine_context(context))  # (B, H)
        hidden = self.stack.step(self.stack.hoist(combined), None, state.hidden, state.masks)
        return (self.stack.top(hidden),), replace(state, hidden=hidden), weights

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        (states,) = found
        return self.dropout(states)


class PlainDecoder(Decoder):
    """No attention: one fixed vector has to hold the whole sentence."""

    formula = "s_t = GRU([y_{t−1}; c], s_{t−1});  tanh(W [c; s_t]),  c the summary of the source"
    paper = "Cho et al. 2014"
    when = "To see what attention is good for: it fails on long sentences."

    def _attention(self, positions: int) -> Attention | None:
        return None

    def _build(self) -> None:
        self.combine = Product(self.context_width + self.width, self.width, bias=False)

    def forward(self, tgt_in: Tensor, source: EncodedSource, lengths: Tensor | None = None) -> Decoded:
        state = self.start(source)
        summary = source.summary.unsqueeze(1).expand(-1, tgt_in.size(1), -1)  # (B, T, D)
        inputs = torch.cat([self.embed(tgt_in), summary.to(self.bridge.weight.dtype)], dim=-1)  # (B, T, E + D)
        states = self.stack.unroll(inputs, state.hidden, state.masks)  # (B, T, H)
        return Decoded(self._readout(inputs, states, summary), None)

    def _transition(
        self, gates: Tensor, embedded: Tensor, state: State, source: EncodedSource
    ) -> tuple[tuple[Tensor, ...], State, Tensor | None]:
        hidden = self.stack.step(gates, source.summary, state.hidden, state.masks)
        return (self.stack.top(hidden), source.summary), replace(state, hidden=hidden), None

    def _readout(self, embedded: Tensor, *found: Tensor, read: bool = False) -> Tensor:
        states, summary = found
        return self.dropout(torch.tanh(self.combine(torch.cat([summary, states], dim=-1))))


DECODERS: dict[str, type[Decoder]] = {
    "bahdanau": BahdanauDecoder,
    "luong": LuongDecoder,
    "conditional": ConditionalDecoder,
    "tutorial": TutorialDecoder,
    "plain": PlainDecoder,
}
