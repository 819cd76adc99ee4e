"""The run directory: write, verify, read.

A checkpoint is a directory written under a temporary name, synced, and renamed; MANIFEST.json, written last, holds the
SHA-256 of every file. What does not match its manifest is not read. Nothing here unpickles anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from translate.config import Config, check_config, dump_config
from translate.errors import ConfigError, RunError
from translate.models.alignment_head import AlignmentHead, HeadSizes
from translate.models.old_names import current_name
from translate.models.plugins import Plugin, changed_plugins, plugins_of
from translate.models.seq2seq import Seq2Seq
from translate.text.tokenizer import Tokenizer

MANIFEST = "MANIFEST.json"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
HEAD, HEAD_NOTE = "head.safetensors", "head.json"
ENVIRONMENT = "environment.json"
TEMPORARY = ".tmp-"
OLD = f"{TEMPORARY}old-"  # what a new one has not yet replaced
NAME = re.compile(r"(step|average)-[0-9]+")  # of a checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """One directory under checkpoints/: its name says kind and update."""

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
            raise RunError(f"{path} is not one of ours: it does not say where training stands.")
        return state


class Run:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints_path = path / "checkpoints"

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing run, or an error that says why it is none."""
        run = cls(path)
        if not path.exists():
            raise RunError(f"{path}: no such run. `translate train CONFIG --run {path}` makes one.")
        if not run.exists():
            raise RunError(run._why_not())
        return run

    def _why_not(self) -> str:
        """What a path that is no run may be instead."""
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
        """The resolved configuration; data paths in it are only a note that `train --resume` follows."""
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
        """Plugins and versions that the run was made with; nothing for runs of releases that did not note them."""
        path = self.path / ENVIRONMENT
        if not path.exists():
            return {}
        try:
            environment = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(environment, dict):
                raise ValueError("it holds no table")
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path}: not readable: {error}") from None
        return environment

    def note_environment(self, **parts: Any) -> None:
        """Replace parts of it."""
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
            raise RunError(f"{self.path / ENVIRONMENT}: the note of its plugins is not readable: {error}") from None

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return Tokenizer.load(self.path / "tokenizer.source.model"), Tokenizer.load(
            self.path / "tokenizer.target.model"
        )

    def create(self, config: Config, source: Tokenizer, target: Tokenizer) -> None:
        """Write what does not change during training; config.toml comes last and makes the folder a run."""
        self.checkpoints_path.mkdir(parents=True, exist_ok=True)
        write_file(self.path / "tokenizer.source.model", source.model)
        write_file(self.path / "tokenizer.target.model", target.model)
        self.note_environment(plugins=[asdict(plugin) for plugin in plugins_of(config.model.members)])
        write_file(self.path / "config.toml", dump_config(config).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one trainer at a time; the lock goes with the process, however it ends."""
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
        """Note by which job of several processes the run is trained, so that a restart of it can go on."""
        write_file(self.path / ".job", name.encode())

    def job(self) -> str | None:
        try:
            return (self.path / ".job").read_text(encoding="utf-8")
        except OSError:
            return None

    def _put_back(self) -> None:
        """A process killed between the two renames of `write_sealed` left the old directory aside and no new one."""
        for folder in (self.checkpoints_path, self.path):
            for aside in folder.glob(f"{OLD}*"):
                place = folder / aside.name.removeprefix(OLD)
                if not place.exists():
                    aside.rename(place)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """The step checkpoints, oldest first, whether sound or not."""
        found = [Checkpoint(p) for p in self.checkpoints_path.glob("step-*") if p.name[5:].isdecimal()]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def latest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are skipped with a warning."""
        for checkpoint in reversed(self.checkpoints()):
            damage = checkpoint.damage()
            if damage is None:
                return checkpoint
            warnings.warn(f"{checkpoint.path} is damaged ({damage}); going back to the one before.", stacklevel=2)
        return None

    def best(self) -> Checkpoint:
        """The checkpoint that `best` names; if it is damaged, the newest sound one."""
        name = self._pointed("best")
        if name is not None:
            checkpoint = Checkpoint(self.checkpoints_path / name)
            damage = checkpoint.damage()
            if damage is None:
                return checkpoint
            warnings.warn(f"{checkpoint.path} is damaged ({damage}); taking the newest sound one.", stacklevel=2)
        newest = self.latest()
        if newest is None:
            raise RunError(f"{self.path} has no sound checkpoint yet. `translate train … --resume` goes on with it.")
        return newest

    def save(
        self,
        name: str,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> Checkpoint:
        """Write a checkpoint, all of it or nothing, and read it back before anything else relies on it."""
        contents = {
            MODEL: save_tensors(dict(weights)),
            OPTIMIZER: save_tensors(dict(optimizer)),
            STATE: json.dumps(state, indent=1, sort_keys=True).encode(),
        }
        write_sealed(self.checkpoints_path / name, contents)
        return Checkpoint(self.checkpoints_path / name)

    def point(self, pointer: str, checkpoint: Checkpoint) -> None:
        """Make `best` or `last` name a checkpoint."""
        write_file(self.path / pointer, f"{checkpoint.name}\n".encode())

    def _pointed(self, pointer: str) -> str | None:
        """What `best` or `last` names; None where there is none, or where it leads out of checkpoints/."""
        path = self.path / pointer
        if not path.is_file():
            return None
        name = path.read_bytes().decode(errors="replace").strip()
        if NAME.fullmatch(name):
            return name
        warnings.warn(f"{path} does not name a checkpoint but {name[:80]!r}; it is not followed.", stacklevel=3)
        return None

    def purge(self, keep: set[str]) -> None:
        """Remove step checkpoints not named; what `best` and `last` name is never touched."""
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
            with torch.device("meta"):  # shapes without memory, so that absurd ones are refused before they are made
                shapes = Seq2Seq(settings, source.size, target.size, max_length)
        except (RuntimeError, TypeError, OverflowError) as error:  # sizes that do not even fit into 64 bits
            raise RunError(f"{where} does not fit the configuration, whose widths are too large: {error}") from None
        check_fit(shapes, weights, where=str(where))
        model = Seq2Seq(settings, source.size, target.size, max_length)
        fill(model, weights)
        return model.eval()

    # -- the alignment head -------------------------------------------------------------------------------------------

    @property
    def head_path(self) -> Path:
        """Where the alignment head is."""
        return self.path / "head"

    def save_head(self, head: AlignmentHead, checkpoint: Checkpoint, note: Mapping[str, Any]) -> None:
        """Write the alignment head that was trained on a checkpoint, and how, all of it or nothing."""
        about = {**note, "width": head.width, "checkpoint": checkpoint.name, "model_sha256": checkpoint.digest()}
        weights = {name: weight.detach().cpu().contiguous() for name, weight in head.named_parameters()}
        contents = {
            HEAD: save_tensors(weights),
            HEAD_NOTE: json.dumps(about, indent=1, sort_keys=True).encode(),
        }
        write_sealed(self.head_path, contents)

    def load_head(self, model: Seq2Seq) -> AlignmentHead:
        """The alignment head for the run's best model."""
        path = self.head_path
        again = f"`translate head {self.path} --reverse RUN2` trains one."
        if not path.is_dir():
            raise RunError(f"{self.path} has no alignment head. {again}")
        damage = damage_of(path, {HEAD, HEAD_NOTE})
        if damage is not None:
            raise RunError(f"{path} is damaged ({damage}). {again}")
        try:
            about = json.loads((path / HEAD_NOTE).read_text())
            width, digest = int(about["width"]), str(about["model_sha256"])
            if width < 1:
                raise ValueError(f"a width of {width}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path / HEAD_NOTE} is not one of ours: {error}. {again}") from None
        if digest != self.best().digest():
            raise RunError(f"{path} belongs to other weights than {self.path} has now. {again}")
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


@cache
def _warn_once(message: str) -> None:
    """Warn of what is found whenever a configuration is read."""
    warnings.warn(message, stacklevel=3)


def damage_of(path: Path, names: set[str]) -> str | None:
    """What is wrong with a directory that must hold these files and a manifest of them, or None."""
    try:
        digests = json.loads((path / MANIFEST).read_text())["sha256"]
        if set(digests) != names:
            *most, last = sorted(names)
            return f"{MANIFEST} does not name {', '.join(most)} and {last}"
        for name, digest in digests.items():
            content = (path / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                return f"{name} does not match its SHA-256 in {MANIFEST}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"{MANIFEST} is not readable: {error}"
    return None


def write_sealed(final: Path, files: Mapping[str, bytes]) -> None:
    """Write a directory of files with their manifest, all of it or nothing, in the place of the one before."""
    folder, name = final.parent, final.name
    temporary, aside = folder / f"{TEMPORARY}{name}", folder / f"{OLD}{name}"
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    contents = {**files, MANIFEST: json.dumps({"format": 1, "sha256": digests}, indent=1).encode()}
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for file, content in contents.items():
            _write_synced(temporary / file, content)
        damage = damage_of(temporary, set(files))
        if damage is not None:
            raise RunError(f"{temporary}: what was written reads back differently: {damage}. Check the disk.")
        _sync_directory(temporary)
        if final.exists():  # moved, not removed, so that the moment without either is as short as can be
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        temporary.rename(final)
        shutil.rmtree(aside, ignore_errors=True)
        _sync_directory(folder)
    except OSError as error:
        needed = sum(map(len, contents.values()))
        raise RunError(f"{final}: writing {needed:,} bytes failed: {error.strerror}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their present names; anything else, a pickle above all, is refused."""
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
    """Copy weights into the model's parameters, wherever these are."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def write_file(path: Path, content: bytes) -> None:
    """Replace a small file in one move."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        _write_synced(temporary, content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path}: writing {len(content):,} bytes failed: {error.strerror}.") from error


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; a disk that fills up may leave half of it."""
    content = f"{line}\n".encode()
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise RunError(f"{path}: writing {len(content):,} bytes failed: {error.strerror}.") from error


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
