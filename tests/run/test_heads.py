"""The alignment head of a run: written whole, read back as it was, and never used with other weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors

from tests.small_runs import write_run
from translate.errors import RunError
from translate.models.alignment_head import AlignmentHead, HeadSizes
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.run.heads import HEAD, HEAD_NOTE, head_path, load_head, save_head
from translate.run.sealed_files import write_sealed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "run"))


@pytest.fixture
def model(run: Run) -> Seq2Seq:
    return run.load_model()


def make_head(run: Run, model: Seq2Seq) -> AlignmentHead:
    torch.manual_seed(4)
    head = AlignmentHead(HeadSizes.of(model, 5))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    save_head(run, head, run.best(), {"steps": 12})
    return head


def seal(run: Run, **changes: Any) -> None:
    """Write the head's folder again with another note, sound by its manifest."""
    note = json.loads((head_path(run) / HEAD_NOTE).read_text()) | changes
    write_sealed(head_path(run), {HEAD: (head_path(run) / HEAD).read_bytes(), HEAD_NOTE: json.dumps(note).encode()})


def test_what_is_saved_is_read_back(run: Run, model: Seq2Seq) -> None:
    head = make_head(run, model)
    found = load_head(run, model)
    assert not found.training
    assert found.width == 5
    for name, parameter in head.named_parameters():
        assert torch.equal(found.get_parameter(name), parameter)
    assert json.loads((head_path(run) / HEAD_NOTE).read_text()) == {
        "steps": 12,
        "width": 5,
        "checkpoint": "step-00000001",
        "model_sha256": run.best().digest(),
    }
    assert head_path(run) == run.path / "head"


def test_a_run_without_a_head_says_how_to_train_one(run: Run, model: Seq2Seq) -> None:
    with pytest.raises(RunError, match=r"has no alignment head\. `translate head .*run --reverse RUN2`"):
        load_head(run, model)


@pytest.mark.parametrize("name", [HEAD, HEAD_NOTE, "MANIFEST.json"])
def test_a_damaged_head_is_refused(run: Run, model: Seq2Seq, name: str) -> None:
    make_head(run, model)
    path = head_path(run) / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="is damaged"):
        load_head(run, model)


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ({"width": 0}, r"is not readable: a width of 0"),
        ({"width": "wide"}, "is not readable"),
        ({"width": None}, "is not readable"),
        ({"width": 10**30}, r"no head can be 10+ wide|does not fit"),
        ({"width": 6}, "does not fit"),
        ({"width": 1}, "does not fit"),
        ({"model_sha256": "00"}, "belongs to other weights"),
    ],
)
def test_a_note_that_does_not_fit_is_refused(run: Run, model: Seq2Seq, note: dict[str, Any], message: str) -> None:
    make_head(run, model)
    seal(run, **note)
    with pytest.raises(RunError, match=message):
        load_head(run, model)


def test_a_head_of_width_one_is_a_head(run: Run, model: Seq2Seq) -> None:
    save_head(run, AlignmentHead(HeadSizes.of(model, 1)), run.best(), {})
    assert load_head(run, model).width == 1


def test_other_tensors_are_refused(run: Run, model: Seq2Seq) -> None:
    make_head(run, model)
    weights = load_file(head_path(run) / HEAD)
    weights["more"] = torch.ones(1)
    write_sealed(head_path(run), {HEAD: save_tensors(weights), HEAD_NOTE: (head_path(run) / HEAD_NOTE).read_bytes()})
    with pytest.raises(RunError, match="more is"):
        load_head(run, model)


def test_a_head_belongs_to_the_best_weights(run: Run, model: Seq2Seq, tmp_path: Path) -> None:
    make_head(run, model)
    other = Run(write_run(tmp_path / "other", seed=2)).best().weights()
    later = run.save("step-00000002", other, {}, {"step": 2, "seconds": 1.0, "last_validated": 2})
    load_head(run, model)
    run.point("best", later)
    with pytest.raises(RunError, match="belongs to other weights"):
        load_head(run, model)
