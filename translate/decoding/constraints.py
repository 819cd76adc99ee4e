"""Which tokens may follow: lengths, repetitions, banned words, prefixes and required words, for all rows at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.hypotheses import max_lengths, min_lengths
from translate.decoding.search_model import SearchSource
from translate.text.tokenizer import BOS, EOS, PAD

Pieces = tuple[int, ...]


@dataclass(frozen=True)
class Constraint:
    """What the translation of one sentence must contain."""

    prefix: Pieces = ()  # how it starts
    required: tuple[Pieces, ...] = ()  # phrases anywhere in it

    @property
    def length(self) -> int:
        """The minimum length of a translation that fulfils it, with `</s>`."""
        return len(self.prefix) + sum(map(len, self.required)) + 1


class Constraints:
    """Which tokens may follow in each sentence of a batch."""

    def __init__(
        self,
        source: SearchSource,
        search: SearchConfig,
        banned: Sequence[Pieces] = (),
        each: Sequence[Constraint] | None = None,
    ) -> None:
        device = source.valid.device
        src_lengths = source.valid.sum(dim=1)
        self.longest = max_lengths(src_lengths, search)  # (B,)
        self.shortest = min_lengths(src_lengths, search)  # (B,)
        if each is not None:
            assert len(each) == len(src_lengths)
            least = torch.tensor([one.length for one in each], device=device)
            self.longest = torch.where(least > 1, torch.maximum(self.longest, least), self.longest)
        self.prefixes = _padded([one.prefix for one in each or ()], device)  # (B, P), or (0, 0)
        phrases = [one.required for one in each or ()]
        self.required = Required(phrases, device) if any(phrases) else None
        self.no_repeat = search.no_repeat_ngram
        self.never = sorted({PAD, BOS, *(pieces[0] for pieces in banned if len(pieces) == 1)} - {EOS})
        rows: dict[int, list[Pieces]] = defaultdict(list)
        for pieces in banned:
            if len(pieces) > 1:
                rows[len(pieces)].append(pieces)
        self.banned = [torch.tensor(some, device=device) for _, some in sorted(rows.items())]  # (Q, M) each
        self.needs_past = bool(self.no_repeat or self.banned)
        # Python numbers that `apply` compares first, because most steps need no tensor operation for lengths.
        self._first_limit, self._last_minimum = int(self.longest.min()), int(self.shortest.max())

    def apply(
        self, log_probs: Tensor, sentences: Tensor, length: int, past: Tensor | None, closed: Tensor | None = None
    ) -> None:
        """Set log probabilities (N, V) of tokens that may not become token number `length` to minus infinity.

        `past` (N, length − 1) is what the rows have written; where `closed` (N,) is True, `</s>` may not follow.
        Padding and `<s>` never follow. A prefix overrides all other rules, as does `</s>` at the maximum length.
        """
        ends = log_probs[:, EOS].clone()  # (N,)
        prefix = None
        if length <= self.prefixes.size(1):
            prefix = self.prefixes[sentences, length - 1]  # (N,)
            wanted = log_probs.gather(1, prefix.clamp(min=0).unsqueeze(1)).squeeze(1)  # (N,)
        for token in self.never:
            log_probs[:, token] = -torch.inf
        if past is not None:
            self._ban_sequences(log_probs, past)
        if length < self._last_minimum:
            log_probs[:, EOS].masked_fill_(self.shortest[sentences] > length, -torch.inf)
        if closed is not None:
            log_probs[:, EOS].masked_fill_(closed, -torch.inf)
        if past is not None or len(self.never) > 2:
            dead = (log_probs.amax(dim=1) == -torch.inf).nonzero().squeeze(1)  # if no other token is allowed, `</s>` is
            log_probs[dead, EOS] = ends[dead]
        if prefix is not None:
            _only(log_probs, prefix >= 0, prefix, wanted)
        if length >= self._first_limit:
            _only(log_probs, self.longest[sentences] <= length, torch.full_like(sentences, EOS), ends)

    def _ban_sequences(self, log_probs: Tensor, past: Tensor) -> None:
        length = past.size(1)
        for table in self.banned:
            before = table.size(1) - 1
            if length >= before:
                hits = (past[:, length - before :].unsqueeze(1) == table[:, :-1]).all(dim=-1)  # (N, Q)
                rows, which = hits.nonzero(as_tuple=True)
                log_probs[rows, table[which, -1]] = -torch.inf
        size = self.no_repeat
        if size and length >= size:
            windows = past.unfold(1, size, 1)  # (N, W, size)
            tail = past[:, length - size + 1 :]  # (N, size − 1)
            rows, which = (windows[:, :, :-1] == tail.unsqueeze(1)).all(dim=-1).nonzero(as_tuple=True)
            log_probs[rows, windows[rows, which, -1]] = -torch.inf


def _only(log_probs: Tensor, where: Tensor, tokens: Tensor, values: Tensor) -> None:
    """Allow only one token, with its log probability, in the rows where `where` (N,) is True."""
    rows = where.nonzero().squeeze(1)
    log_probs[rows] = -torch.inf
    log_probs[rows, tokens[rows]] = values[rows]


class Required:
    """Which required words each live row has written, and how much of those it has begun.

    The beam is divided into banks (Post and Vilar 2018), one for each number of required tokens written. Banks get the
    same number of places while they have candidates.
    """

    def __init__(self, phrases: Sequence[Sequence[Pieces]], device: torch.device) -> None:
        count = max(map(len, phrases))
        filled = [[*some, *[()] * (count - len(some))] for some in phrases]
        longest = max(len(phrase) for some in filled for phrase in some)
        self.phrases = torch.tensor(
            [[[*phrase, *[-1] * (longest - len(phrase))] for phrase in some] for some in filled], device=device
        )  # (B, C, P)
        self.lengths = (self.phrases >= 0).sum(dim=2)  # (B, C)
        self.num_banks = int(self.lengths.sum(dim=1).max()) + 1
        self.own, self.own_lengths = self.phrases, self.lengths  # (N, C, P), (N, C) of the live rows
        self.met = self.lengths == 0  # (N, C)
        self.begun = torch.zeros_like(self.phrases, dtype=torch.bool)  # (N, C, P): the last p tokens are its first p
        self.begun[:, :, 0] = True

    @property
    def closed(self) -> Tensor:
        """Which rows (N,) lack required words."""
        return ~self.met.all(dim=1)

    def candidates(self) -> Tensor:
        """Tokens (N, C · P) that would continue missing phrases; −1 is none."""
        wanted = self.begun & ~self.met.unsqueeze(2)  # (N, C, P)
        return torch.where(wanted, self.own, -1).flatten(1)

    def written(self, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """How many required tokens are written and how many missing, both (…), if tokens (…) follow in rows (…)."""
        steps = self.begun[rows] & (self.own[rows] == tokens[..., None, None])  # (…, C, P)
        lengths = self.own_lengths[rows]  # (…, C)
        reached = steps * torch.arange(1, steps.size(-1) + 1, device=steps.device)  # (…, C, P)
        met = self.met[rows] | (reached == lengths.unsqueeze(-1)).any(dim=-1)  # (…, C)
        partial = reached.amax(dim=-1).masked_fill(met, 0).amax(dim=-1)  # (…)
        return (lengths * met).sum(dim=-1) + partial, (lengths * ~met).sum(dim=-1)

    def follow(self, parents: Tensor, tokens: Tensor) -> None:
        """Tokens (N',) follow in rows `parents` (N',), which are the live rows from now on."""
        self.own, self.own_lengths = self.own[parents], self.own_lengths[parents]
        steps = self.begun[parents] & (self.own == tokens[:, None, None])  # (N', C, P)
        reached = steps * torch.arange(1, steps.size(-1) + 1, device=steps.device)
        self.met = self.met[parents] | (reached == self.own_lengths.unsqueeze(-1)).any(dim=-1)
        self.begun = torch.cat([torch.ones_like(steps[:, :, :1]), steps[:, :, :-1]], dim=2)

    def order(self, totals: Tensor, banks: Tensor) -> Tensor:
        """Sort candidates (U, M) by rank within their bank; among equal ranks, the one that has written more first."""
        by_total = totals.argsort(dim=1, descending=True, stable=True)  # (U, M)
        sorted_banks = banks.gather(1, by_total)
        is_bank = sorted_banks.unsqueeze(2) == torch.arange(self.num_banks, device=banks.device)  # (U, M, banks)
        ranks = is_bank.cumsum(dim=1).gather(2, sorted_banks.unsqueeze(2)).squeeze(2)  # (U, M)
        keys = ranks * (self.num_banks + 1) - sorted_banks
        keys = keys.masked_fill(totals.gather(1, by_total) == -torch.inf, torch.iinfo(keys.dtype).max)
        return by_total.gather(1, keys.argsort(dim=1, stable=True))


def _padded(rows: Sequence[Pieces], device: torch.device) -> Tensor:
    """Rows of pieces with −1 after their ends: (B, P)."""
    longest = max(map(len, rows), default=0)
    if not longest:
        return torch.zeros(len(rows), 0, dtype=torch.long, device=device)
    return torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows], device=device)
