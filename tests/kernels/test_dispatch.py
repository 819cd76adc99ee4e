"""Kernels or their plain twins: who gets which, and that a whole model can do without any kernel."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

import translate.kernels
from tests.kernels.kernel_inputs import check_all_close, small_model, small_pairs
from translate.kernels import KERNELS, dispatch, plain, uses_twin
from translate.models.seq2seq import Seq2Seq


@pytest.fixture
def _no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "KERNELS", {})
    monkeypatch.setattr(dispatch, "_plain", set())


def mark(name: str) -> Any:
    """A kernel that says who was called, as callers get it."""

    def fast(given: int) -> tuple[str, int]:
        return "fast", given

    def twin(given: int) -> tuple[str, int]:
        return "twin", given

    fast.__name__ = twin.__name__ = name
    return dispatch.kernel(twin)(fast)


@pytest.mark.usefixtures("_no_kernels")
def test_callers_get_the_kernel_unless_they_ask_for_its_twin() -> None:
    one, other = mark("one"), mark("other")
    assert (one(1), other(2)) == (("fast", 1), ("fast", 2))
    with plain("one"):
        assert (one(1), other(2)) == (("twin", 1), ("fast", 2))
        with plain():
            assert (one(1), other(2)) == (("twin", 1), ("twin", 2))
        assert (one(1), other(2)) == (("twin", 1), ("fast", 2))
    assert (one(1), other(2)) == (("fast", 1), ("fast", 2))


@pytest.mark.usefixtures("_no_kernels")
def test_an_error_within_leaves_nothing_plain() -> None:
    one = mark("one")
    with pytest.raises(KeyError), plain():
        raise KeyError
    assert one(1) == ("fast", 1)


@pytest.mark.usefixtures("_no_kernels")
def test_the_environment_asks_for_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSLATE_KERNELS", "reference")
    assert mark("one")(1) == ("twin", 1)


def test_a_twin_has_the_name_of_its_kernel() -> None:
    def one() -> None: ...

    def other() -> None: ...

    with pytest.raises(AssertionError, match="one and its twin other"):
        dispatch.kernel(other)(one)


def test_the_compiler_sees_the_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(map(uses_twin, KERNELS))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert all(map(uses_twin, KERNELS))


# -- a whole model -----------------------------------------------------------------------------------------------------


def functions() -> set[str]:
    """How autograd calls the nodes of functions that kernels define."""
    found = set()
    for module in pkgutil.iter_modules(translate.kernels.__path__, "translate.kernels."):
        defined = vars(importlib.import_module(module.name)).values()
        found |= {one.__name__ + "Backward" for one in defined if isinstance(one, type) and issubclass(one, Function)}
    return found - {"FunctionBackward"}


def nodes(result: Tensor) -> Iterator[Any]:
    """Every node of the graph behind a result."""
    seen, left = set[Any](), [result.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            left += [before for before, _ in node.next_functions]


def loss(model: Seq2Seq) -> Tensor:
    pairs = small_pairs()
    decoded, source = model(pairs.src, pairs.src_valid, pairs.src_lengths, pairs.tgt_in)
    rows = torch.arange(len(pairs.tgt_in)).repeat_interleave(pairs.tgt_in.size(1))
    weights = None if decoded.weights is None else decoded.weights.flatten(0, 1)
    features, targets = decoded.features.flatten(0, 1), pairs.tgt_in.flatten()
    total, _ = model.decoder.output.loss(features, weights, source, targets, rows, 0.1)
    return total


@pytest.mark.parametrize("kind", ["bahdanau", "conditional", "luong"])
def test_a_model_on_the_twins_learns_the_same_without_a_function_of_ours(kind: str) -> None:
    model = small_model(kind)
    fast = loss(model)
    assert len({type(node).__name__ for node in nodes(fast)} & functions()) > 5
    with plain():
        slow = loss(model)
        parameters = list(model.parameters())
        assert not {type(node).__name__ for node in nodes(slow)} & functions()
        expected = torch.autograd.grad(slow, parameters)
    check_all_close([fast, *torch.autograd.grad(fast, parameters)], [slow, *expected])


def test_the_environment_puts_a_whole_program_on_the_twins() -> None:
    code = "from translate import kernels; print(len(kernels.KERNELS), sum(map(kernels.uses_twin, kernels.KERNELS)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TRANSLATE_KERNELS": "reference"}, capture_output=True,
        text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.split() == [str(len(KERNELS))] * 2
