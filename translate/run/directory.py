"""The run directory: configuration, tokenizers, checkpoints, and which of these is the best and the newest."""

from __future__ import annotations

import fcntl
import json
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from translate.config import Config, check_config, dump_config
from translate.errors import ConfigError, RunError
from translate.models.plugins import Plugin, changed_plugins, plugins_of
from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import MODEL, NAME, OPTIMIZER, STATE, Checkpoint, check_fit, fill
from translate.run.sealed_files import OLD, TEMPORARY, write_file, write_sealed
from translate.text.tokenizer import Tokenizer

ENVIRONMENT = "environment.json"


class Run:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints_path = path / "checkpoints"

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open an existing run; the error says why a path is not one."""
        run = cls(path)
        if not path.exists():
            raise RunError(f"{path}: no such run. `translate train CONFIG --run {path}` makes one.")
        if not run.exists():
            raise RunError(run._why_not())
        return run

    def _why_not(self) -> str:
        """The message for a path that is not a run, with what it may be instead."""
        path = self.path
        if path.suffix == ".toml":
            return f"{path} is a configuration, not a run: `translate train {path}` makes a run under runs/."
        if (path / "config.toml").is_file():
            config = path / "config.toml"
            return f"{path} is a folder to train from, not a run: `translate train {config}` makes a run under runs/."
        inside = sorted(child for child in path.iterdir() if Run(child).exists()) if path.is_dir() else []
        hint = f" Did you mean {inside[0]}?" if inside else f" Did you mean {path.parent}?" * Run(path.parent).exists()
        return f"{path} is not a run: it has no config.toml with checkpoints beside it.{hint}"

    def exists(self) -> bool:
        return (self.path / "config.toml").is_file() and (
            self.checkpoints_path.is_dir() or (self.path / "tokenizer.source.model").is_file()
        )

    # -- configuration and tokenizers ---------------------------------------------------------------------------------

    def config(self) -> Config:
        """The resolved configuration; only `train --resume` uses its data paths."""
        for change in changed_plugins(self.plugins(), str(self.path)):
            _warn_once(f"{change}; results may differ.")
        path = self.path / "config.toml"
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: not readable: {error}") from None
        try:
            return check_config(tree, origin=str(path))
        except ConfigError as error:
            raise RunError(
                f"{error}\nThis run may come from another release; CHANGELOG.md says what changed."
            ) from None

    def environment(self) -> dict[str, Any]:
        """Plugins and versions that the run was made with; empty for runs of releases that did not record them."""
        path = self.path / ENVIRONMENT
        if not path.exists():
            return {}
        try:
            environment = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(environment, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path}: not readable: {error}") from None
        return environment

    def note_environment(self, **parts: Any) -> None:
        """Replace parts of the environment."""
        environment = json.dumps({**self.environment(), **parts}, indent=1, ensure_ascii=False)
        write_file(self.path / ENVIRONMENT, environment.encode())

    def plugins(self) -> list[Plugin]:
        """The plugins whose members the run uses, as they were when it was started."""
        try:
            return [
                Plugin(str(note["name"]), str(note["sha256"]), tuple(map(str, note["members"])))
                for note in self.environment().get("plugins", [])
            ]
        except (TypeError, KeyError) as error:
            raise RunError(f"{self.path / ENVIRONMENT}: the record of its plugins is not readable: {error}") from None

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return Tokenizer.load(self.path / "tokenizer.source.model"), Tokenizer.load(
            self.path / "tokenizer.target.model"
        )

    def create(self, config: Config, source: Tokenizer, target: Tokenizer) -> None:
        """Write the files that do not change during training; config.toml comes last and makes the folder a run."""
        self.checkpoints_path.mkdir(parents=True, exist_ok=True)
        write_file(self.path / "tokenizer.source.model", source.model)
        write_file(self.path / "tokenizer.target.model", target.model)
        self.note_environment(plugins=[asdict(plugin) for plugin in plugins_of(config.model.members)])
        write_file(self.path / "config.toml", dump_config(config).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Allow only one trainer at a time; the lock ends with the process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunError(f"{self.path}: cannot hold a run: {error.strerror}. Give another --run.") from None
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path}: another `translate train` is working on this run.") from None
            self._put_back()
            yield

    def note_job(self, name: str) -> None:
        """Record the torchrun job that trains the run, so that a restart of the job can resume it."""
        write_file(self.path / ".job", name.encode())

    def job(self) -> str | None:
        try:
            return (self.path / ".job").read_text(encoding="utf-8")
        except OSError:
            return None

    def _put_back(self) -> None:
        """Restore directories that a process killed between the two renames of `write_sealed` has left aside."""
        for folder in (self.checkpoints_path, self.path):
            for aside in folder.glob(f"{OLD}*"):
                place = folder / aside.name.removeprefix(OLD)
                if not place.exists():
                    aside.rename(place)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """The step checkpoints, oldest first, including damaged ones."""
        found = [Checkpoint(p) for p in self.checkpoints_path.glob("step-*") if p.name[5:].isdecimal()]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def latest(self) -> Checkpoint | None:
        """The newest undamaged checkpoint; damaged ones are skipped with a warning."""
        for checkpoint in reversed(self.checkpoints()):
            damage = checkpoint.damage()
            if damage is None:
                return checkpoint
            warnings.warn(f"{checkpoint.path} is damaged ({damage}); going back to the one before.", stacklevel=2)
        return None

    def best(self) -> Checkpoint:
        """The checkpoint that `best` names; if it is damaged, the newest undamaged one."""
        name = self._pointed("best")
        if name is not None:
            checkpoint = Checkpoint(self.checkpoints_path / name)
            damage = checkpoint.damage()
            if damage is None:
                return checkpoint
            warnings.warn(f"{checkpoint.path} is damaged ({damage}); taking the newest undamaged one.", stacklevel=2)
        newest = self.latest()
        if newest is None:
            raise RunError(f"{self.path} has no undamaged checkpoint. `translate train … --resume` continues the run.")
        return newest

    def save(
        self,
        name: str,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> Checkpoint:
        """Write a checkpoint, whole or not at all, and read it back to verify it."""
        contents = {
            MODEL: save_tensors(dict(weights)),
            OPTIMIZER: save_tensors(dict(optimizer)),
            STATE: json.dumps(state, indent=1, sort_keys=True).encode(),
        }
        write_sealed(self.checkpoints_path / name, contents)
        return Checkpoint(self.checkpoints_path / name)

    def point(self, pointer: str, checkpoint: Checkpoint) -> None:
        """Let `best` or `last` name a checkpoint."""
        write_file(self.path / pointer, f"{checkpoint.name}\n".encode())

    def _pointed(self, pointer: str) -> str | None:
        """What `best` or `last` names; None if there is no such file or it does not hold a checkpoint's name."""
        path = self.path / pointer
        if not path.is_file():
            return None
        name = path.read_bytes().decode(errors="replace").strip()
        if NAME.fullmatch(name):
            return name
        warnings.warn(f"{path} does not name a checkpoint but {name[:80]!r}; it is ignored.", stacklevel=3)
        return None

    def purge(self, keep: set[str]) -> None:
        """Remove step checkpoints that are not in `keep`; those that `best` and `last` name always stay."""
        keep = keep | {name for pointer in ("best", "last") if (name := self._pointed(pointer)) is not None}
        for checkpoint in self.checkpoints():
            if checkpoint.name not in keep:
                shutil.rmtree(checkpoint.path)
        for leftover in self.checkpoints_path.glob(f"{TEMPORARY}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def load_model(self, checkpoint: Checkpoint | None = None) -> Seq2Seq:
        """The model of a checkpoint (the best by default), on the CPU, in evaluation mode."""
        source, target = self.tokenizers()
        checkpoint = checkpoint or self.best()
        weights = checkpoint.weights()
        config = self.config()
        settings, max_length = config.model, config.data.max_length
        where = checkpoint.path / MODEL
        layers = max(settings.encoder.layers, settings.decoder.layers)
        if layers > len(weights):
            raise RunError(f"{where} does not fit the configuration: {layers} layers, but {len(weights)} tensors.")
        try:
            with torch.device("meta"):  # shapes without memory, so that absurd ones are refused before allocation
                shapes = Seq2Seq(settings, source.size, target.size, max_length)
        except (RuntimeError, TypeError, OverflowError) as error:  # sizes that do not even fit into 64 bits
            raise RunError(f"{where} does not fit the configuration, whose widths are too large: {error}") from None
        check_fit(shapes, weights, where=str(where))
        model = Seq2Seq(settings, source.size, target.size, max_length)
        fill(model, weights)
        return model.eval()


@cache
def _warn_once(message: str) -> None:
    """Warn only once, though the configuration is read often."""
    warnings.warn(message, stacklevel=3)
