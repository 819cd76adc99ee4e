"""The alignment head of a run, which belongs to the checkpoint that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from translate.errors import RunError
from translate.models.alignment_head import AlignmentHead, HeadSizes
from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import Checkpoint, check_fit, fill, read_tensors
from translate.run.directory import Run
from translate.run.sealed_files import damage_of, write_sealed

HEAD, HEAD_NOTE = "head.safetensors", "head.json"


def head_path(run: Run) -> Path:
    """The folder of the alignment head."""
    return run.path / "head"


def save_head(run: Run, head: AlignmentHead, checkpoint: Checkpoint, note: Mapping[str, Any]) -> None:
    """Write the alignment head that was trained on a checkpoint, with its settings, whole or not at all."""
    about = {**note, "width": head.width, "checkpoint": checkpoint.name, "model_sha256": checkpoint.digest()}
    weights = {name: weight.detach().cpu().contiguous() for name, weight in head.named_parameters()}
    contents = {
        HEAD: save_tensors(weights),
        HEAD_NOTE: json.dumps(about, indent=1, sort_keys=True).encode(),
    }
    write_sealed(head_path(run), contents)


def load_head(run: Run, model: Seq2Seq) -> AlignmentHead:
    """The alignment head for the run's best model."""
    path = head_path(run)
    again = f"`translate head {run.path} --reverse RUN2` trains one."
    if not path.is_dir():
        raise RunError(f"{run.path} has no alignment head. {again}")
    damage = damage_of(path, {HEAD, HEAD_NOTE})
    if damage is not None:
        raise RunError(f"{path} is damaged ({damage}). {again}")
    try:
        about = json.loads((path / HEAD_NOTE).read_text())
        width, digest = int(about["width"]), str(about["model_sha256"])
        if width < 1:
            raise ValueError(f"a width of {width}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / HEAD_NOTE} is not readable: {error}. {again}") from None
    if digest != run.best().digest():
        raise RunError(f"{path} belongs to other weights than {run.path} has now. {again}")
    weights = read_tensors(path / HEAD)
    try:
        with torch.device("meta"):
            shapes = AlignmentHead(HeadSizes.of(model, width))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise RunError(f"{path / HEAD_NOTE}: no head can be {width} wide: {error}. {again}") from None
    check_fit(shapes, weights, where=str(path / HEAD))
    head = AlignmentHead(HeadSizes.of(model, width))
    fill(head, weights)
    return head.to(next(model.parameters()).device).eval()
