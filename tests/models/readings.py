"""A second reading of scores, summaries, scopes and selections: NumPy, one query and one sentence at a time.

There is no padding. Nothing here knows of the package; `p` has the parameters of the part by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float64]
Parameters = Mapping[str, Array]
Select = Callable[[Array], Array]  # scores of what competes -> weights


def parameters_of(module: nn.Module) -> dict[str, Array]:
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# -- scores: query q (H,), memory m (D,) of position s -> a number ---------------------------------------------------


def _additive_units(p: Parameters, q: Array, m: Array) -> Array:
    return np.tanh(p["query.weight"] @ q + p["memory.weight"] @ m + p["memory.bias"])


def _direction(x: Array) -> Array:
    return x / np.linalg.norm(x)


SCORES: dict[str, Callable[[Parameters, Array, Array, int], Any]] = {
    "additive": lambda p, q, m, s: p["v"][0] @ _additive_units(p, q, m),
    "general": lambda p, q, m, s: q @ p["w.weight"] @ m,
    "dot": lambda p, q, m, s: q @ (p["w.weight"] @ m),
    "scaled_dot": lambda p, q, m, s: q @ (p["w.weight"] @ m) / np.sqrt(len(q)),
    "linear": lambda p, q, m, s: np.concatenate([p["query.weight"][0], p["memory.weight"][0]]) @ np.concatenate([q, m]),
    "dual": lambda p, q, m, s: (
        (p["shares"][0] * (q @ (p["w.weight"] @ m)) + p["shares"][1] * (q @ (p["value.weight"] @ m))) / np.sqrt(len(q))
    ),
    "cosine": lambda p, q, m, s: np.exp(p["log_scale"][0]) * (_direction(q) @ _direction(p["w.weight"] @ m)),
    "location": lambda p, q, m, s: p["w.weight"][s] @ q + p["w.bias"][s],
    "static": lambda p, q, m, s: p["v.weight"][0] @ np.tanh(p["hidden.weight"] @ m + p["hidden.bias"]),
}

# The same with a row of weights for each feature, over the hidden units of the score: a number for each feature.
FEATURE_SCORES: dict[str, Callable[[Parameters, Array, Array], Array]] = {
    "additive": lambda p, q, m: p["mix.weight"] @ _additive_units(p, q, m),
    "general": lambda p, q, m: p["mix.weight"] @ (q * (p["w.weight"] @ m)),
    "dot": lambda p, q, m: p["mix.weight"] @ (q * (p["w.weight"] @ m)),
    "scaled_dot": lambda p, q, m: p["mix.weight"] @ (q * (p["w.weight"] @ m)) / np.sqrt(len(q)),
    "linear": lambda p, q, m: p["query.weight"] @ q + p["memory.weight"] @ m,
    "dual": lambda p, q, m: (
        p["mix.weight"]
        @ (p["shares"][0] * q * (p["w.weight"] @ m) + p["shares"][1] * q * (p["value.weight"] @ m))
        / np.sqrt(len(q))
    ),
    "cosine": lambda p, q, m: (
        np.exp(p["log_scale"][0]) * p["mix.weight"] @ (_direction(q) * _direction(p["w.weight"] @ m))
    ),
    "static": lambda p, q, m: p["v.weight"] @ np.tanh(p["hidden.weight"] @ m + p["hidden.bias"]),
}

# Which parameters a head has a share of, in rows; all others are whole.
_SHARED: dict[str, tuple[str, ...]] = {
    "additive": ("query.weight", "memory.weight", "memory.bias", "v"),
    "general": ("w.weight",),
    "dot": ("w.weight",),
    "scaled_dot": ("w.weight",),
    "linear": ("query.weight", "memory.weight"),
    "dual": ("w.weight", "value.weight"),
    "cosine": ("w.weight",),
    "location": ("w.weight", "w.bias"),
    "static": ("v.weight",),
}
_QUERY_SHARED = ("general", "dot", "scaled_dot", "dual", "cosine")


def head_score(name: str, p: Parameters, q: Array, m: Array, s: int, head: int, heads: int) -> Any:
    """What one head of several finds: the score of a smaller model that has the head's rows of the parameters."""
    own = {key: np.split(value, heads)[head] if key in _SHARED[name] else value for key, value in p.items()}
    return SCORES[name](own, np.split(q, heads)[head] if name in _QUERY_SHARED else q, m, s)


# Scores whose values are not the memory itself: memory (S, D) -> values (S, C).
VALUES: dict[str, Callable[[Parameters, Array], Array]] = {"dual": lambda p, m: m @ p["value.weight"].T}


def values_of(name: str, p: Parameters, memory: Array) -> Array:
    return VALUES[name](p, memory) if name in VALUES else memory


# -- summaries: memory (S, D) of a sentence and the encoder's final state (D,) -> (D,) ---------------------------------


def _attention_summary(p: Parameters, memory: Array, final: Array) -> Array:
    scores = np.array([p["v.weight"][0] @ np.tanh(p["hidden.weight"] @ m + p["hidden.bias"]) for m in memory])
    return softmax(scores) @ memory


SUMMARIES: dict[str, Callable[[Parameters, Array, Array], Array]] = {
    "last": lambda p, memory, final: final,
    "mean": lambda p, memory, final: memory.mean(axis=0),
    "attention": _attention_summary,
    "zero": lambda p, memory, final: np.zeros_like(final),
}


# -- selections: scores of what competes -> weights --------------------------------------------------------------------


def softmax(scores: Array) -> Array:
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()


def sparsemax(scores: Array) -> Array:
    """By bisection: the sum of what stands above a threshold falls as the threshold rises."""
    low, high = scores.min() - 1.0, scores.max()
    for _ in range(100):
        middle = (low + high) / 2
        if np.maximum(scores - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(scores - high, 0)


def one_hot_best(scores: Array) -> Array:
    return np.eye(len(scores))[scores.argmax()]


SELECTIONS: dict[str, Select] = {
    "soft": softmax,
    "sparsemax": sparsemax,
    "hard_gumbel": one_hot_best,
    "hard_reinforce": one_hot_best,
}


# -- scopes: scores (n,) of a sentence of n positions, query q (H,), step t, window w -> weights (n,) ------------------


def _inside(scores: Array, distances: Array, window: int, select: Select) -> Array:
    weights = np.zeros(len(scores))
    weights[distances <= window] = select(scores[distances <= window])
    return weights


def _predicted_distances(p: Parameters, q: Array, n: int, head: int) -> Array:
    centre = (n - 1) * sigmoid(p["v.weight"][head] @ np.tanh(p["hidden.weight"] @ q))
    return np.abs(np.arange(n) - centre)


def _global(p: Parameters, scores: Array, q: Array, t: int, window: int, head: int, select: Select) -> Array:
    return select(scores)


def _local_m(p: Parameters, scores: Array, q: Array, t: int, window: int, head: int, select: Select) -> Array:
    n = len(scores)
    return _inside(scores, np.abs(np.arange(n) - min(t, n - 1)), window, select)


def _local_p(p: Parameters, scores: Array, q: Array, t: int, window: int, head: int, select: Select) -> Array:
    distances = _predicted_distances(p, q, len(scores), head)
    deviation = window / 2
    return _inside(scores, distances, window, select) * np.exp(-(distances**2) / (2 * deviation**2))


def _expanded(p: Parameters, scores: Array, q: Array, t: int, window: int, head: int, select: Select) -> Array:
    outside = np.maximum(0, _predicted_distances(p, q, len(scores), head) - window)
    return select(scores - np.log1p(np.exp(p["slope"][0])) * outside)


def _hybrid(p: Parameters, scores: Array, q: Array, t: int, window: int, head: int, select: Select) -> Array:
    gate = sigmoid(p["gate.weight"][0] @ q + p["gate.bias"][0])
    return gate * select(scores) + (1 - gate) * _local_p(p, scores, q, t, window, head, select)


SCOPES: dict[str, Callable[[Parameters, Array, Array, int, int, int, Select], Array]] = {
    "global": _global,
    "local_m": _local_m,
    "local_p": _local_p,
    "expanded": _expanded,
    "hybrid": _hybrid,
}
