"""Checkpoints: weights, optimizer and state of a run after an update. Nothing here unpickles anything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from translate.errors import RunError
from translate.models.old_names import current_name
from translate.run.sealed_files import MANIFEST, damage_of

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
NAME = re.compile(r"(step|average)-[0-9]+")  # of a checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """One directory under checkpoints/; its name gives kind and update."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def step(self) -> int:
        return int(self.name.rpartition("-")[2])

    def damage(self) -> str | None:
        """What is wrong with it, or None."""
        return damage_of(self.path, {MODEL, OPTIMIZER, STATE})

    def digest(self) -> str:
        """The SHA-256 of its weights, by its manifest."""
        return str(json.loads((self.path / MANIFEST).read_text())["sha256"][MODEL])

    def weights(self) -> dict[str, Tensor]:
        return read_tensors(self.path / MODEL)

    def optimizer(self) -> dict[str, Tensor]:
        return read_tensors(self.path / OPTIMIZER)

    def state(self) -> dict[str, Any]:
        path = self.path / STATE
        try:
            state = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: not readable: {error}") from None
        if not isinstance(state, dict) or not {"step", "seconds", "last_validated"} <= state.keys():
            raise RunError(f"{path} is not the state of a training run: step, seconds or last_validated is missing.")
        return state


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their current names; other files, such as pickles, are refused."""
    try:
        return {current_name(name): tensor for name, tensor in load_tensors(path.read_bytes()).items()}
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}.") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise RunError(f"{path} is not a safetensors file: {error}. Pickles and .pt files are never read.") from None


def check_fit(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights whose names or shapes are not the model's."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected == found:
        return
    name = sorted(expected.items() ^ found.items())[0][0]
    raise RunError(
        f"{where} does not fit the configuration: {name} is {found.get(name, 'missing')} there, "
        f"{expected.get(name, 'not expected')} by config.toml."
    )


def fill(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into the model's parameters, on any device."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
