"""How alignment heads are trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from translate import defaults
from translate.decoding.aligner import AlignSettings


@dataclass(frozen=True)
class HeadSettings:
    """How heads are trained."""

    width: int = defaults.HEAD_WIDTH
    steps: int = defaults.HEAD_STEPS
    minutes: float | None = None
    rounds: int = defaults.HEAD_ROUNDS
    """From the second round on, the heads of the previous round give the links."""
    agreement: float = defaults.HEAD_AGREEMENT
    """Weight of the agreement of both heads."""
    null: float = defaults.HEAD_NULL
    """Weight of the target "no word" for a word without a link."""
    learning_rate: float = defaults.HEAD_LEARNING_RATE
    batch_tokens: int = defaults.HEAD_BATCH_TOKENS
    valid_every: int = 100
    patience: int = 5
    """Validations without a better loss before a round ends."""
    pairs: int = defaults.HEAD_PAIRS
    seed: int = defaults.HEAD_SEED
    method: str = defaults.HEAD_SYMMETRIZE
    lexicon: bool = False
    """Whether a lexicon learnt from the text weights the attention that links come from."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How links are extracted, including the shift of the attention."""
