"""What has no meaning is refused, with the reason and the setting to change; what is accepted can be built."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import ValidationError

from tests.models.covering import Row, configure, is_legal
from tests.models.small_models import build, make_inputs, run
from translate.config import AttentionConfig, checks, choices
from translate.config.members import SCORES


class Refusal(NamedTuple):
    given: Row
    reason: str
    advice: str
    mended: Row  # by following the advice


def tutorial_with(score: str) -> Refusal:
    return Refusal(
        {"decoder.kind": "tutorial", "attention.score": score},
        f"scores positions, not states: attention.score = '{score}'",
        "use attention.score = 'location'",
        {"attention.score": "location"},
    )


def uneven(score: str, name: str, part: str) -> Refusal:
    return Refusal(
        {"encoder.kind": "gru", "attention.score": score, "attention.heads": 2, name: 7},
        "attention.heads = 2 does not divide",
        f"{part} = 7",
        {name: 6},
    )


REFUSALS = {
    **{
        f"reverse-{kind}": Refusal(
            {"encoder.reverse": True, "encoder.kind": kind},
            f"encoder.reverse = true: encoder.kind = '{kind}' reads both ways already",
            "use encoder.kind = 'gru' or 'lstm'",
            {"encoder.kind": kind.removeprefix("bi")},
        )
        for kind in ("bigru", "bilstm")
    },
    "residual": Refusal(
        {"encoder.residual": True}, "from the second layer on", "set layers >= 2", {"encoder.layers": 2}
    ),
    "per-feature-heads": Refusal(
        {"attention.per_feature": True, "attention.heads": 2},
        "every dimension a head of its own",
        "set heads = 1",
        {"attention.heads": 1},
    ),
    "per-feature-location": Refusal(
        {"attention.per_feature": True, "attention.score": "location"},
        "attention.score = 'location' would need a matrix of positions for every dimension",
        "or use attention.score = 'additive', 'general', 'dot', 'scaled_dot', 'linear', 'dual', 'cosine' or 'static'",
        {"attention.score": "static"},
    ),
    "per-feature-reinforce": Refusal(
        {"attention.per_feature": True, "attention.selection": "hard_reinforce"},
        "has one reward for all of them",
        "or use attention.selection = 'soft', 'sparsemax' or 'hard_gumbel'",
        {"attention.selection": "hard_gumbel"},
    ),
    **{
        f"hybrid-{selection}": Refusal(
            {"attention.scope": "hybrid", "attention.selection": selection},
            f"blends two sets of weights, selection = '{selection}' takes one position",
            "use 'soft' or 'sparsemax', or another scope",
            {"attention.selection": "sparsemax"},
        )
        for selection in ("hard_gumbel", "hard_reinforce")
    },
    "static-hops": Refusal(
        {"attention.score": "static", "attention.hops": 2},
        "attention.score = 'static' does not read the query",
        "set attention.hops = 1",
        {"attention.hops": 1},
    ),
    "linear-hops": Refusal(
        {"attention.score": "linear", "attention.hops": 2},
        "attention.score = 'linear' gives the same weights for every query",
        "set attention.hops = 1",
        {"attention.hops": 1},
    ),
    "tutorial-additive": tutorial_with("additive"),
    "tutorial-static": tutorial_with("static"),
    "plain-zero": Refusal(
        {"decoder.kind": "plain", "encoder.summary": "zero"},
        "reads only the summary of the source",
        "use 'last', 'mean' or 'attention'",
        {"encoder.summary": "mean"},
    ),
    "plain-copy": Refusal(
        {"decoder.kind": "plain", "decoder.copy": True},
        "decoder.copy = true copies what attention points to",
        "decoder.kind = 'plain' has no attention",
        {"decoder.copy": False},
    ),
    "plain-self-attention": Refusal(
        {"decoder.kind": "plain", "encoder.self_attention": True},
        "works on the memory, which decoder.kind = 'plain' does not read",
        "use encoder.summary = 'mean' or 'attention', or another decoder",
        {"encoder.summary": "mean"},
    ),
    "heads-memory": uneven("linear", "encoder.width", "the memory's width encoder.width"),
    "heads-additive": uneven("additive", "attention.width", "attention.width"),
    **{
        f"heads-{score}": uneven(score, "decoder.width", "decoder.width")
        for score in ("dot", "scaled_dot", "general", "dual", "cosine")
    },
}


def refuse(given: Row) -> ValueError:
    """The one error that these settings raise, as it was raised."""
    with pytest.raises(ValidationError) as caught:
        configure(given)
    (problem,) = caught.value.errors()
    error = problem["ctx"]["error"]
    assert isinstance(error, ValueError)
    return error


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_has_no_meaning_is_refused(refusal: Refusal) -> None:
    message = str(refuse(refusal.given))
    assert refusal.reason in message
    assert refusal.advice in message
    configure({**refusal.given, **refusal.mended})


# Checks of settings that a model does not have; tests/test_config.py reads what they refuse.
OTHERS = (
    checks.check_data,
    checks.check_tokenizer,
    checks.check_train,
    checks.check_together,
    checks.check_search,
    checks._check_guided,
)


def lines_that_raise(module: ModuleType) -> set[int]:
    """Where in a module something is refused."""
    return {node.lineno for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Raise)}


def lines_of(function: Callable[..., Any]) -> set[int]:
    source, begin = inspect.getsourcelines(function)
    return set(range(begin, begin + len(source)))


def test_every_refusal_is_read_here() -> None:
    """By the line that raises it, so that a new one shows up."""
    hit = set()
    for refusal in REFUSALS.values():
        trace = refuse(refusal.given).__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == checks.__file__:
                last = trace.tb_lineno
            trace = trace.tb_next
        hit.add(last)
    assert hit == lines_that_raise(checks) - set().union(*map(lines_of, OTHERS))


ODD = {"encoder.width": 7, "attention.width": 9, "decoder.width": 11}


@pytest.mark.parametrize("name", [*ODD, "none"])
@pytest.mark.parametrize("score", choices(AttentionConfig, "score"))
@torch.no_grad()
def test_heads_that_are_accepted_can_be_built(score: str, name: str) -> None:
    """With one width that two heads do not divide: either this is said, or it plays no part."""
    row = {"encoder.kind": "gru", "attention.score": score, "attention.heads": 2}
    row |= {name: ODD[name]} if name != "none" else {}
    divided = {width.replace("output_width", "width") for width in SCORES[score].width_divided_by_heads}
    assert is_legal(row) == (name not in divided)
    if is_legal(row):
        decoded, _ = run(build(configure(row)), make_inputs())
        assert decoded.features.isfinite().all()
