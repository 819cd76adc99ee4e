"""A checkpoint is all there or not there; what is damaged, foreign or of another shape is never used."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from translate.errors import RunError
from translate.run.checkpoint import MODEL, OPTIMIZER, STATE, read_tensors
from translate.run.directory import Run
from translate.run.sealed_files import MANIFEST
from translate.training.logging import MetricsLog

FILES = (MODEL, OPTIMIZER, STATE)
KILOBYTE = 1024 if sys.platform == "darwin" else 1  # getrusage counts memory in bytes there
PROGRESS = {"step": 0, "seconds": 0.5, "last_validated": 0}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.checkpoints_path.mkdir(parents=True)
    return run


def tensors(size: int) -> dict[str, Tensor]:
    return {"w": torch.arange(size, dtype=torch.float32), "b": torch.full((2, 3), float(size))}


def save(run: Run, step: int, size: int = 5) -> None:
    run.save(f"step-{step:08d}", tensors(size), {"w.exp_avg": torch.ones(size)}, {**PROGRESS, "step": step})


def names(run: Run) -> list[str]:
    """All there is under checkpoints/, temporary directories too."""
    return sorted(path.name for path in run.checkpoints_path.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sign(checkpoint: Path) -> None:
    """Write a manifest that fits whatever the files are now, as an attacker would."""
    digests = {name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() for name in FILES}
    (checkpoint / MANIFEST).write_text(json.dumps({"format": 1, "sha256": digests}))


def best_of(run: Path) -> Path:
    return run / "checkpoints" / (run / "best").read_text().strip()


def test_what_is_saved_is_read_back(run: Run) -> None:
    save(run, 7)
    checkpoint = run.latest()
    assert checkpoint is not None
    assert checkpoint.damage() is None
    assert sorted(path.name for path in checkpoint.path.iterdir()) == sorted((*FILES, MANIFEST))
    assert {name: tensor.tolist() for name, tensor in checkpoint.weights().items()} == {
        name: tensor.tolist() for name, tensor in tensors(5).items()
    }
    assert checkpoint.optimizer()["w.exp_avg"].tolist() == [1.0] * 5
    assert checkpoint.state() == {**PROGRESS, "step": 7}


def test_saving_again_replaces_and_leaves_nothing_else(run: Run) -> None:
    save(run, 7, size=5)
    save(run, 7, size=6)
    assert names(run) == ["step-00000007"]
    assert len(run.checkpoints()[0].weights()["w"]) == 6


# -- row 2 and 4: writing fails ---------------------------------------------------------------------------------------


@contextmanager
def file_size_limit(most: int) -> Iterator[None]:
    """The kernel refuses to make any file larger: a real failure in the middle of writing, for any user."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("step", [1, 2], ids=["over the old one", "beside the old one"])
def test_failed_write_leaves_the_old_checkpoint_and_nothing_else(run: Run, step: int) -> None:
    save(run, 1)
    before = contents(run.path)
    with file_size_limit(4096), pytest.raises(RunError, match=r"writing [\d,]+ bytes failed") as failure:
        save(run, step, size=100_000)
    assert str(run.checkpoints_path / f"step-{step:08d}") in str(failure.value)
    assert int(str(failure.value).split("writing ")[1].split(" bytes")[0].replace(",", "")) > 800_000
    assert names(run) == ["step-00000001"]
    assert contents(run.path) == before


def test_failed_write_of_a_pointer_leaves_the_old_one(run: Run) -> None:
    save(run, 1)
    run.point("best", run.checkpoints()[0])
    with file_size_limit(4), pytest.raises(RunError, match=r"best: writing 14 bytes failed"):
        run.point("best", run.checkpoints()[0])
    assert (run.path / "best").read_text() == "step-00000001\n"
    assert sorted(path.name for path in run.path.iterdir()) == ["best", "checkpoints"]


@pytest.mark.parametrize(
    ("weights", "state"),
    [({"w": torch.eye(3).to_sparse()}, PROGRESS), ({"w": torch.ones(3)}, {**PROGRESS, "odd": object()})],
    ids=["a tensor that cannot be saved", "a state that cannot be saved"],
)
def test_what_cannot_be_saved_touches_nothing(run: Run, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
    save(run, 1)
    before = contents(run.path)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        run.save("step-00000001", weights, {}, state)
    assert names(run) == ["step-00000001"]
    assert contents(run.path) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a file system of a given size; only root may, and not everywhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip("mounting a tmpfs is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_full_disk_names_path_and_bytes(small_disk: Callable[[str], Path]) -> None:
    run = Run(small_disk("256k") / "run")
    run.checkpoints_path.mkdir(parents=True)
    save(run, 1, size=10_000)
    before = contents(run.path)
    with pytest.raises(RunError, match=r"writing 3\d\d,\d{3} bytes failed: No space left on device") as failure:
        save(run, 2, size=40_000)
    assert "step-00000002" in str(failure.value)
    assert contents(run.path) == before
    assert run.latest() == run.checkpoints()[0]


def test_metrics_on_a_full_disk_name_path_and_bytes(small_disk: Callable[[str], Path]) -> None:
    folder = small_disk("64k")
    log = MetricsLog(folder, tensorboard=False, step=0, last_validated=0)
    log.write("train", 1, loss=2.0)
    (folder / "ballast").write_bytes(bytes(60 << 10))  # all but the page that the metrics lie in
    with pytest.raises(RunError, match=r"metrics.jsonl: writing \d,\d{3} bytes failed: No space left on device"):
        log.write("train", 2, **{f"value{i}": 1.0 for i in range(300)})
    (folder / "ballast").unlink()
    MetricsLog(folder, tensorboard=False, step=1, last_validated=1).write("train", 2, loss=1.5)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["loss"]) for record in records] == [(1, 2.0), (2, 1.5)]


@pytest.mark.slow
def test_training_on_a_full_disk_keeps_the_old_checkpoint(
    small_disk: Callable[[str], Path], project: Path, translate: Any
) -> None:
    path = small_disk("480k") / "run"  # room for the data and one checkpoint of 190 kB
    done = translate("train", project, "--no-test", "--run", path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "step-00000020: writing 1" in done.stderr
    assert "No space left on device" in done.stderr
    assert names(Run(path)) == ["step-00000010"]
    assert Run(path).checkpoints()[0].damage() is None


# -- row 3, 5 and 6: what was damaged afterwards ----------------------------------------------------------------------


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
@pytest.mark.parametrize("harm", [empty, truncate, flip, remove])
def test_damaged_checkpoint_is_skipped_with_a_warning(run: Run, harm: Callable[[Path], None], file: str) -> None:
    save(run, 1)
    save(run, 2)
    run.point("best", run.checkpoints()[-1])
    harm(run.checkpoints_path / "step-00000002" / file)
    with pytest.warns(UserWarning, match=r"step-00000002 is damaged .*going back") as heard:
        latest = run.latest()
    assert latest is not None
    assert latest.step == 1
    assert file in str(heard[0].message)
    with pytest.warns(UserWarning, match="step-00000002 is damaged"):
        assert run.best().step == 1


def test_manifest_that_leaves_a_file_out_is_damage(run: Run) -> None:
    save(run, 1)
    path = run.checkpoints_path / "step-00000001" / MANIFEST
    for digests in ({}, {STATE: json.loads(path.read_text())["sha256"][STATE]}):
        path.write_text(json.dumps({"format": 1, "sha256": digests}))
        with pytest.warns(UserWarning, match="damaged"):
            assert run.latest() is None


def test_no_sound_checkpoint_is_an_error_that_says_what_to_do(run: Run) -> None:
    save(run, 1)
    empty(run.checkpoints_path / "step-00000001" / MODEL)
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match=r"no undamaged checkpoint.*--resume"),
    ):
        run.best()


def test_command_goes_back_to_the_sound_checkpoint(own_run: Path, translate: Any) -> None:
    best = best_of(own_run)
    assert best.name == "step-00000040"
    flip(best / MODEL)
    done = translate("text", own_run, input="the man\n")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert done.stderr.startswith("Warning: ")
    assert f"{best} is damaged" in done.stderr


# -- row 7 and 8: which are kept, and in what order -------------------------------------------------------------------


@pytest.mark.parametrize(("older", "newer"), [(999, 1000), (99_999_999, 100_000_000)])
def test_order_is_numeric(run: Run, older: int, newer: int) -> None:
    save(run, newer)
    save(run, older)
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [older, newer]
    latest = run.latest()
    assert latest is not None
    assert latest.step == newer


def test_other_names_are_no_checkpoints(run: Run) -> None:
    save(run, 3)
    for name in ("step-", "step-x", "step-²", "step-3.old", ".tmp-step-00000009"):
        (run.checkpoints_path / name).mkdir()
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [3]


def test_purge_keeps_best_last_and_what_it_is_told(run: Run) -> None:
    for step in (1, 2, 3, 4, 5, 6):
        save(run, step)
    run.save("average-00000006", tensors(5), {}, PROGRESS)
    run.point("best", run.checkpoints()[1])
    run.point("last", run.checkpoints()[3])
    (run.checkpoints_path / ".tmp-step-00000007").mkdir()
    run.purge({"step-00000006"})
    assert names(run) == ["average-00000006", "step-00000002", "step-00000004", "step-00000006"]


# -- row 9: one trainer at a time -------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from translate.run.directory import Run
with Run(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_second_process_is_refused_until_the_first_is_gone(run: Run, environment: dict[str, str]) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="another `translate train`"), run.lock():
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with run.lock():
            pass
    finally:
        holder.kill()
        holder.communicate()


# -- row 33 to 35: runs that somebody else made -----------------------------------------------------------------------


class Marks:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_pickles_are_refused_and_never_loaded(own_run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    best = best_of(own_run)
    content = pickle.dumps({"w": Marks(marker)})
    pickle.loads(content)["w"].close()
    assert marker.exists(), "the pickle must be one that would be noticed"
    marker.unlink()
    (best / MODEL).write_bytes(content)
    sign(best)
    run = Run.open(own_run)
    assert run.best().damage() is None
    with pytest.raises(RunError, match=r"model\.safetensors is not a safetensors file"):
        run.load_model()
    assert not marker.exists()


def test_torch_file_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    torch.save({"w": Marks(marker)}, tmp_path / "model.pt")
    with pytest.raises(RunError, match=r"model\.pt is not a safetensors file.*never read"):
        read_tensors(tmp_path / "model.pt")
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 8, (2**63 - 1).to_bytes(8, "little") + b"{}"])
def test_broken_weights_are_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MODEL).write_bytes(content)
    with pytest.raises(RunError, match="not a safetensors file"):
        read_tensors(tmp_path / MODEL)


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No such file"):
        read_tensors(tmp_path / MODEL)


@pytest.mark.parametrize("state", [b"[]", b"{}", b"nonsense", b"\xff"])
def test_foreign_state_is_an_error(own_run: Path, state: bytes) -> None:
    best = best_of(own_run)
    (best / STATE).write_bytes(state)
    sign(best)
    with pytest.raises(RunError, match=r"state\.json"):
        Run.open(own_run).best().state()


@pytest.mark.parametrize("change", ["shape", "missing", "extra"])
def test_weights_that_do_not_fit_are_refused_by_name(own_run: Path, change: str) -> None:
    best = best_of(own_run)
    weights = read_tensors(best / MODEL)
    name, tensor = sorted(weights.items())[3]
    if change == "shape":
        weights[name] = torch.cat([tensor, tensor])
    elif change == "missing":
        del weights[name]
    else:
        name = "aaa"
        weights[name] = torch.ones(2)
    save_file(weights, best / MODEL)
    sign(best)
    with pytest.raises(RunError, match="does not fit") as failure:
        Run.open(own_run).load_model()
    assert f" {name} is " in str(failure.value)
    assert str(best / MODEL) in str(failure.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [("width = 16", f"width = {10**digits}") for digits in (7, 12, 30)] + [("layers = 1", f"layers = {10**9}")],
)
def test_absurd_shapes_are_refused_before_allocation(own_run: Path, old: str, new: str) -> None:
    config = own_run / "config.toml"
    before, section, after = config.read_text().partition("[model.decoder]")
    assert old in after
    config.write_text(before + section + after.replace(old, new, 1))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match=r"does not fit|config\.toml"):
        Run.open(own_run).load_model()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 100_000 * KILOBYTE


@pytest.mark.parametrize("pointer", ["../..", "..", ".", "", "../../elsewhere", "/", "step-00000040/../../..", "\0"])
def test_pointer_that_leaves_the_run_is_not_followed(own_run: Path, tmp_path: Path, pointer: str) -> None:
    # A sound checkpoint stands wherever the pointer could lead: only its name may keep it from being taken.
    sound = best_of(own_run)
    for place in (tmp_path, tmp_path / "elsewhere", own_run, own_run / "checkpoints"):
        place.mkdir(exist_ok=True)
        for name in (*FILES, MANIFEST):
            (place / name).write_bytes((sound / name).read_bytes())
    (own_run / "best").write_text(pointer)
    with pytest.warns(UserWarning, match="is ignored"):
        assert Run.open(own_run).best().path == own_run / "checkpoints" / "step-00000040"


def test_absolute_pointer_is_not_followed(own_run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "step-00000099"
    best_of(own_run).rename(elsewhere)
    (own_run / "best").write_text(str(elsewhere))
    with pytest.warns(UserWarning, match="is ignored"):
        assert Run.open(own_run).best().name == "step-00000030"


def test_sound_run_gives_no_warning(tiny_run: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Run.open(tiny_run).load_model()
    assert not model.training


def test_what_is_no_run_is_told_what_it_may_be(tmp_path: Path) -> None:
    run, mine = tmp_path / "runs" / "mine", tmp_path / "mine"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").touch()
    mine.mkdir()
    (mine / "config.toml").touch()
    (tmp_path / "empty").mkdir()
    for path, hint in (
        (mine, f"`translate train {mine / 'config.toml'}` makes a run"),
        (mine / "config.toml", f"`translate train {mine / 'config.toml'}` makes a run"),
        (tmp_path / "runs", f"Did you mean {run}?"),
        (run / "checkpoints", f"Did you mean {run}?"),
        (tmp_path / "empty", "it has no config.toml with checkpoints beside it."),
    ):
        with pytest.raises(RunError) as caught:
            Run.open(path)
        assert hint in str(caught.value)
