"""Defaults that commands share with the functions they call, where no configuration has a setting for them."""

from __future__ import annotations

LINK_THRESHOLD = 0.3  # the least weight of a link, where links are made by a threshold
MAX_WORDS, MAX_RATIO = 250, 3.0  # of a pair that counts as clean
TRIALS = 10_000  # of approximate randomisation
RESAMPLES = 1000  # of a bootstrap over sentences

# Alignment heads; a round's length in updates, then how its links are made and weighed.
HEAD_WIDTH = 128
HEAD_STEPS = 500
HEAD_ROUNDS = 2  # 1 if links are given, which further rounds cannot improve
HEAD_SYMMETRIZE = "intersect"
HEAD_AGREEMENT = 1.0
HEAD_NULL, HEAD_NULL_OF_GIVEN_LINKS = 0.0, 0.5
HEAD_LEARNING_RATE = 1e-3
HEAD_BATCH_TOKENS = 2000
HEAD_PAIRS = 100_000
HEAD_SEED = 1
