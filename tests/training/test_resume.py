"""Stop and resume equals never stopping, bit for bit, however the process was stopped."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from translate.run.directory import Run

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "data" / "demo"
SECONDS = 180  # nothing waits so long on a good day
TIMING = ("tokens_per_second", "seconds")
STEPS, VALID_EVERY, LOG_EVERY = 60, 20, 4
# Dropout and Adam are on by default. Sixty updates see three epochs end.
SETTINGS = (
    f"train.steps={STEPS}",
    f"train.valid_every={VALID_EVERY}",
    f"logging.every={LOG_EVERY}",
    "train.batch_tokens=250",
    "train.schedule=cosine",
    "train.warmup=5",
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Path]) -> Path:
    """Short sentences, because the time of an update goes with their length; and a validation that can be hit."""
    config = new_project(tmp_path_factory.mktemp("resume") / "project")
    sides = [(DEMO / f"train.{ending}").read_text().split("\n")[:2000] for ending in ("en", "fr")]
    short = [pair for pair in zip(*sides, strict=True) if pair[0] and max(len(side.split()) for side in pair) < 7]
    for split, pairs in (("train", short[:200]), ("valid", short[:300])):
        for side, ending in enumerate(("en", "fr")):
            (config.parent / "data" / f"{split}.{ending}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return config


class Training:
    """A real `translate train` on one run."""

    def __init__(self, job: Path, run: Path, environment: dict[str, str]) -> None:
        self.run = run
        self.words = ["train", str(job), *SETTINGS, "--run", str(run), "--no-test", "--resume"]
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "translate", *self.words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Watch closely until something holds, which must be before the process ends."""
        assert self.process is not None
        end = time.monotonic() + SECONDS
        while not condition():
            if self.process.poll() is not None:
                assert self.process.stderr is not None
                raise AssertionError(f"it ended with {self.process.returncode}: {self.process.stderr.read()}")
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.001)

    def logged(self, step: int) -> Callable[[], bool]:
        """Whether the training figures of an update are in metrics.jsonl, which comes before its validation."""
        wanted = f'"train", "step": {step},'
        return lambda: (self.run / "metrics.jsonl").is_file() and wanted in (self.run / "metrics.jsonl").read_text()

    def writing(self, step: int) -> Callable[[], bool]:
        """Whether a checkpoint is being written."""
        path = self.run / "checkpoints" / f".tmp-step-{step:08d}"
        return path.exists

    def signalled(self, *numbers: int) -> tuple[int, str]:
        """Send signals all at once, and give back the exit code and what was said."""
        assert self.process is not None
        if len(numbers) > 1:
            self.process.send_signal(signal.SIGSTOP)  # so that none is handled before all are there
        for number in numbers:
            self.process.send_signal(number)
        if len(numbers) > 1:
            self.process.send_signal(signal.SIGCONT)
        return self.end()

    def end(self) -> tuple[int, str]:
        assert self.process is not None
        try:
            _, said = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, said

    def finish(self) -> str:
        """Go on to the end."""
        self.start()
        code, said = self.end()
        assert code == 0, said
        return said

    def state(self) -> dict[str, Any]:
        """Where the newest checkpoint stands."""
        newest = max((self.run / "checkpoints").glob("step-*"))
        state: dict[str, Any] = json.loads((newest / "state.json").read_text())
        return state


def metrics(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [{key: value for key, value in record.items() if key not in TIMING} for record in records]


def assert_equal_runs(run: Path, other: Path) -> None:
    """All that training computed is the same to the byte; only the clock may differ."""
    for pointer in ("best", "last"):
        assert (run / pointer).read_text() == (other / pointer).read_text()
    name = (run / "last").read_text().strip()
    for file in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = ((path / "checkpoints" / name / file).read_bytes() for path in (run, other))
        assert ours == theirs, file
    states = [json.loads((path / "checkpoints" / name / "state.json").read_text()) for path in (run, other)]
    for state in states:
        state.pop("seconds")
        state["window"].pop("seconds", None)
    assert states[0] == states[1]
    assert metrics(run) == metrics(other)


@pytest.fixture(scope="module")
def straight(job: Path, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """The run that never stopped."""
    training = Training(job, tmp_path_factory.mktemp("straight") / "run", environment)
    training.finish()
    assert (training.run / "last").read_text() == f"step-{STEPS:08d}\n"
    records = metrics(training.run)
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(LOG_EVERY, STEPS + 1, LOG_EVERY))
    assert [r["step"] for r in records if r["kind"] == "valid"] == list(range(VALID_EVERY, STEPS + 1, VALID_EVERY))
    assert training.state()["epoch"] >= 3, "the corpus must be small enough to see several epochs end"
    return training.run


def test_sigterm_in_training_and_in_validation(
    job: Path, straight: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    training = Training(job, tmp_path / "run", environment)
    training.start()
    training.wait_for(training.logged(24))
    code, said = training.signalled(signal.SIGTERM)
    assert code == 143, said
    state = training.state()
    assert 24 <= state["step"] < 40
    assert f"Stopped after update {state['step']}; the checkpoint is saved." in said
    assert "Traceback" not in said

    training.start()
    training.wait_for(training.logged(40))
    time.sleep(0.05)  # by now it validates
    code, said = training.signalled(signal.SIGTERM)
    assert code == 143, said
    state = training.state()
    assert (state["step"], state["last_validated"]) == (40, 20), "the signal must come during validation"

    said = training.finish()
    assert "Going on from" in said
    assert_equal_runs(training.run, straight)


def test_sigterm_in_saving_and_ctrl_c_in_training(
    job: Path, straight: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    training = Training(job, tmp_path / "run with a space", environment)
    training.start()
    training.wait_for(training.writing(20))
    code, said = training.signalled(signal.SIGTERM)
    assert code == 143, said
    assert training.state()["step"] == 20, "the signal must come while it saves"
    assert not list((training.run / "checkpoints").glob(".tmp*"))

    training.start()
    training.wait_for(training.logged(28))
    code, said = training.signalled(signal.SIGINT)
    assert code == 130, said
    assert "Traceback" not in said
    command = re.search(r"^Go on with: (translate train .*)$", said, re.MULTILINE)
    assert command is not None, said
    done = subprocess.run(command[1], shell=True, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert_equal_runs(training.run, straight)


def test_second_signal_and_sigkill_at_any_moment(
    job: Path, straight: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    training = Training(job, tmp_path / "run", environment)
    training.start()
    training.wait_for((training.run / "data").exists)  # before there is a run
    code, _ = training.signalled(signal.SIGKILL)
    assert code == -signal.SIGKILL

    training.start()
    training.wait_for(training.logged(8))
    code, said = training.signalled(signal.SIGINT, signal.SIGTERM)
    assert code == 143, said
    assert "checkpoint is saved" not in said, "asked twice, it must not stay to save"
    assert not list((training.run / "checkpoints").iterdir())

    generator = random.Random(0)
    for moment in (training.logged(16), training.writing(20), training.writing(40)):
        training.start()
        training.wait_for(moment)
        time.sleep(generator.uniform(0, 0.01))
        code, _ = training.signalled(signal.SIGKILL)
        assert code == -signal.SIGKILL
    training.finish()
    assert_equal_runs(training.run, straight)
    assert not list((training.run / "checkpoints").glob(".tmp*"))


def test_sigterm_after_going_back_from_a_damaged_checkpoint(
    job: Path, straight: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    training = Training(job, tmp_path / "run", environment)
    shutil.copytree(straight, training.run)
    damaged = training.run / "checkpoints" / f"step-{STEPS:08d}" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    training.start()
    training.wait_for(lambda: not training.logged(44)())  # what comes after the checkpoint is forgotten
    training.wait_for(training.logged(44))
    code, said = training.signalled(signal.SIGTERM)
    assert code == 143, said
    assert f"Warning: {damaged.parent} is damaged" in said
    stopped = re.search(r"Stopped after update (\d+); the checkpoint is saved", said)
    assert stopped is not None
    # The damaged one is newer by name; the promise that all is saved must hold all the same.
    assert (training.run / "checkpoints" / f"step-{int(stopped[1]):08d}" / "MANIFEST.json").is_file()
    said = training.finish()
    assert f"Going on from {training.run}/checkpoints/step-{int(stopped[1]):08d}" in said
    assert_equal_runs(training.run, straight)


# -- in this process, where no signal is needed -----------------------------------------------------------------------


@pytest.fixture
def resumed(command_line: Callable[..., Any], job: Path) -> Callable[..., Any]:
    def call(run: Path, *more: str) -> Any:
        return command_line("train", job, *SETTINGS, *more, "--run", run, "--no-test", "--resume")

    return call


@pytest.fixture
def finished(straight: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that the test may change."""
    shutil.copytree(straight, tmp_path / "finished")
    return tmp_path / "finished"


def test_finished_run_says_so(resumed: Callable[..., Any], straight: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.name != ".lock"}
    answer = resumed(straight)
    assert answer.code == 0
    assert answer.err.endswith(  # TRANSLATE_KERNELS, if set, is said before
        f"{straight} is finished. Raise train.steps to continue it.\n"
        f"The run is in {straight}. Try: translate interactive {straight}\n"
    )
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.name != ".lock"} == before


def test_a_kill_between_a_checkpoint_and_its_names_is_made_up_for(resumed: Callable[..., Any], finished: Path) -> None:
    names = {name: (finished / name).read_text() for name in ("best", "last")}
    assert names["best"] != f"{Run(finished).checkpoints()[0].name}\n", "the first checkpoint should not be the best"
    for name in names:
        (finished / name).write_text(f"{Run(finished).checkpoints()[0].name}\n")
    (finished / "finished.json").unlink()
    assert resumed(finished).code == 0
    assert {name: (finished / name).read_text() for name in names} == names


def test_finished_run_without_a_test_score_gets_one(
    command_line: Callable[..., Any], job: Path, finished: Path
) -> None:
    words = ("train", job, *SETTINGS, "--run", finished, "--resume")
    answer = command_line(*words)
    assert answer.code == 0, answer.err
    assert "test: BLEU" in answer.err
    assert json.loads((finished / "translations" / "test.json").read_text())["sentences"] == 12
    assert "is finished" in command_line(*words).err


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("model.decoder.width=20", "model.decoder.width: 16 in the run, 20 now"),
        ("tokenizer.vocabulary=450", "tokenizer.vocabulary: 400 in the run, 450 now"),
        ("train.seed=2", "train.seed: 1 in the run, 2 now"),
        ("data.target_lang=de", "data.target_lang: fr in the run, de now"),
        ("train.threads=2", "train.threads: 1 in the run, 2 now"),
    ],
)
def test_changed_setting_is_refused(
    resumed: Callable[..., Any], straight: Path, override: str, difference: str
) -> None:
    answer = resumed(straight, override)
    assert answer.code == 2
    assert f"Error: {straight} was started with other settings:\n" in answer.err
    assert f"  {difference}\n" in answer.err
    assert "Give another --run" in answer.err


@pytest.mark.parametrize("file", ["train.en", "train.fr", "valid.fr"])
def test_changed_data_is_refused(
    resumed: Callable[..., Any], straight: Path, job: Path, tmp_path: Path, file: str
) -> None:
    shutil.copytree(job.parent / "data", tmp_path / "data")
    moved = f"data.folder={tmp_path / 'data'}"
    answer = resumed(straight, moved)
    assert answer.code == 0, "the same files in another place are the same data"
    content = (tmp_path / "data" / file).read_bytes()
    (tmp_path / "data" / file).write_bytes(content.replace(b"e", b"a", 1))
    answer = resumed(straight, moved)
    assert answer.code == 2
    assert str(tmp_path / "data" / file) in answer.err
    assert "has changed since the run was started" in answer.err


def small(project: Path, pairs: int) -> None:
    for ending in ("en", "fr"):
        path = project.parent / "data" / f"train.{ending}"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:pairs]))


@pytest.mark.parametrize("step", [10, 20, 30])
def test_any_checkpoint_leads_to_the_same_end(
    command_line: Callable[..., Any], project: Path, tmp_path: Path, step: int
) -> None:
    # Twenty pairs, each a batch of its own: update 20 ends an epoch exactly, 10 and 30 are in the middle of one.
    small(project, 20)
    settings = ("train.batch_tokens=1", "train.keep_last=9", "train.patience=9", "train.schedule=plateau")
    straight, run = tmp_path / "straight", tmp_path / "run"
    words = ("train", project, *settings, "--no-test", "--resume", "--run")
    assert command_line(*words, straight).code == 0
    shutil.copytree(straight, run)
    state = json.loads((run / "checkpoints" / f"step-{step:08d}" / "state.json").read_text())
    assert (state["epoch"], state["position"]) == (step // 20, step % 20)
    for checkpoint in (run / "checkpoints").iterdir():
        if int(checkpoint.name[5:]) > step:
            shutil.rmtree(checkpoint)
    answer = command_line(*words, run)
    assert answer.code == 0, answer.err
    assert f"Going on from {run}/checkpoints/step-{step:08d}" in answer.err
    assert_equal_runs(run, straight)


@pytest.mark.parametrize(
    "more",
    [
        ("train.accumulate=3",),
        ("train.teacher_forcing.ratio=0.5", "train.optimizer=adamw"),
        ("model.decoder.kind=luong", "model.encoder.layers=2", "model.decoder.layers=2"),
        ("train.optimizer=sgd", "train.schedule=halving", "train.halve_after=2", "train.halve_every=2"),
        ("train.optimizer=sgd", "train.momentum=0.9", "train.ema=0.9", "train.average=2"),
        ("train.optimizer=adadelta", "train.rho=0.9", "train.learning_rate=1"),
        ("tokenizer.kind=word", "data.max_length=0"),
    ],
    ids=["accumulation", "scheduled sampling", "luong with layers", "sgd", "momentum and ema", "adadelta", "words"],
)
def test_other_ways_to_train_resume_as_well(
    command_line: Callable[..., Any], project: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    settings = ("train.steps=6", "train.valid_every=3", "train.batch_tokens=300", "train.keep_last=9", *more)
    straight, run = tmp_path / "straight", tmp_path / "run"
    words = ("train", project, *settings, "--no-test", "--resume", "--run")
    assert command_line(*words, straight).code == 0
    shutil.copytree(straight, run)
    shutil.rmtree(run / "checkpoints" / "step-00000006")
    assert command_line(*words, run).code == 0
    assert_equal_runs(run, straight)


def test_seeds(command_line: Callable[..., Any], project: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        settings = ("train.steps=4", "train.valid_every=2", f"train.seed={seed}")
        assert command_line("train", project, *settings, "--no-test", "--run", tmp_path / name).code == 0
    assert_equal_runs(tmp_path / "one", tmp_path / "same")
    one, other = (
        (tmp_path / name / "checkpoints" / "step-00000004" / "model.safetensors").read_bytes()
        for name in ("one", "other")
    )
    assert one != other


def test_run_sent_without_its_prepared_pairs_prepares_them_again(
    resumed: Callable[..., Any], straight: Path, finished: Path
) -> None:
    shutil.rmtree(finished / "cache")
    shutil.rmtree(finished / "checkpoints" / f"step-{STEPS:08d}")
    answer = resumed(finished)
    assert answer.code == 0, answer.err
    assert_equal_runs(finished, straight)


def test_run_that_is_being_trained_is_refused(
    command_line: Callable[..., Any], job: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    import fcntl

    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = command_line("train", job, *SETTINGS, "--run", tmp_path / "run", "--resume")
    assert answer.code == 2
    assert f"{tmp_path / 'run'}: another `translate train` is working on this run" in answer.err
    assert os.listdir(tmp_path / "run") == [".lock"]
