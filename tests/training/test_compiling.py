"""torch.compile: the same numbers where it can be had, one line where it cannot."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from translate.config import ModelConfig
from translate.models.seq2seq import Seq2Seq
from translate.training.compiling import compile_step

WIDTHS = {"embedding": {"width": 6}, "encoder": {"width": 5}, "attention": {"width": 7}, "decoder": {"width": 8}}
VALID = torch.tensor([[True, True, True], [True, True, False]])


def make_model(kind: str) -> Seq2Seq:
    torch.manual_seed(1)
    tree: dict[str, Any] = {**WIDTHS, "decoder": {"width": 8, "kind": kind, "dropout": 0.0}}
    return Seq2Seq(ModelConfig.model_validate(tree), 11, 13, 9)


def features_of_steps(model: Seq2Seq) -> list[torch.Tensor]:
    source = model.eval().encode(torch.tensor([[5, 6, 7], [8, 9, 0]]), VALID, torch.tensor([3, 2]))
    state, found = model.decoder.start(source), []
    for token in (4, 5, 6):
        features, state, _ = model.decoder.step(torch.tensor([token, token + 1]), state, source)
        found.append(features)
    return [*found, *torch.autograd.grad(torch.stack(found).square().sum(), list(model.decoder.stack.parameters()))]


@pytest.mark.slow
def test_a_compiled_step_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as for the compiler, without its later stages, which take a minute or two."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model = make_model("plain")
    expected = features_of_steps(model)
    eager = model.decoder.transition
    assert "minute" in compile_step(model.decoder)
    assert model.decoder.transition is not eager
    for one, other in zip(features_of_steps(model), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: Any) -> Any:
        def fails(*_: Any) -> None:
            raise RuntimeError("No working C++ compiler found\nand a page of advice")

        return fails

    monkeypatch.setattr(torch, "compile", broken)
    model = make_model("bahdanau")
    line = compile_step(model.decoder)
    assert "No working C++ compiler found" in line
    assert "\n" not in line
    assert "transition" not in vars(model.decoder)
