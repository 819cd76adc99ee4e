"""What the tests of whole commands share: a tiny corpus, its configuration, and a run made by the real command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.zoo_state import restored_zoo

# A shell that starts pytest in the background makes it, and all that it starts, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

DEMO = Path(__file__).parents[1] / "data" / "demo"
TRAIN_PAIRS, VALID_PAIRS, TEST_PAIRS = 200, 14, 12

# Every width differs, so that a swapped axis fails; the constant high rate makes forty updates write some words.
CONFIG = """
[data]
folder = "data"
source_lang = "en"
target_lang = "fr"

[tokenizer]
vocabulary = 400

[model.embedding]
width = 12

[model.encoder]
width = 8

[model.attention]
width = 10

[model.decoder]
width = 16

[train]
steps = 40
threads = 1
batch_tokens = 600
learning_rate = 0.03
schedule = "constant"
warmup = 0
valid_every = 10
metric = "loss"

[search]
beam = 2

[logging]
every = 5
tensorboard = false
samples = 1
pictures = false
"""

Translate = Callable[..., subprocess.CompletedProcess[Any]]


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "load a plugin, so that the parametrised tests of tests/models and tests/decoding try its members as well"
    parser.addoption("--plugin", action="append", type=Path, default=[], metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if plugins := config.getoption("plugin"):
        from translate.models.plugins import load_plugins

        load_plugins(plugins)


def write_project(folder: Path) -> Path:
    """A corpus of the demo's first lines under folder/data and its configuration, whose path is returned."""
    (folder / "data").mkdir(parents=True)
    for split, count in (("train", TRAIN_PAIRS), ("valid", VALID_PAIRS), ("test", TEST_PAIRS)):
        for ending in ("en", "fr", "align"):
            lines = (DEMO / f"{split}.{ending}").read_bytes().split(b"\n")[:count]
            (folder / "data" / f"{split}.{ending}").write_bytes(b"".join(line + b"\n" for line in lines))
    config = folder / "tiny.toml"
    config.write_text(CONFIG)
    return config


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of commands: one thread, no colours, wide enough that no message is wrapped."""
    extra = {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "300", "PYTHONUNBUFFERED": "", "TERM": "dumb"}
    scripts = str(Path(sys.executable).parent)
    return {**os.environ, **extra, "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")])}


@pytest.fixture(scope="session")
def translate(environment: dict[str, str]) -> Translate:
    """Run `python -m translate` in a process of its own; text in and out unless `text=False`."""

    def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[Any]:
        options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 300, **options}
        if not options["text"]:
            del options["encoding"]
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        command = [sys.executable, "-m", "translate", *map(str, arguments)]
        return subprocess.run(command, env=environment, **options)

    return run


class Answer(NamedTuple):
    """How a command ended and what it said."""

    code: int | str | None
    out: str
    err: str


@pytest.fixture
def _zoo_is_restored() -> Iterator[None]:
    """A plugin that a command loads inside this process is forgotten after the test."""
    with restored_zoo():
        yield


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], _zoo_is_restored: None
) -> Callable[..., Answer]:
    """Call the command line inside this process, which saves importing torch; without stdin, signals or exit."""
    from translate.cli.app import main

    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() sets it

    def call(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["translate", *map(str, arguments)])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)  # Python shows one text from one place only once
            with pytest.raises(SystemExit) as end:
                main()
        return Answer(end.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def new_project() -> Callable[[Path], Path]:
    """Write a tiny corpus and its configuration into a folder, and give back the configuration's path."""
    return write_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The configuration of a tiny corpus that the test may change."""
    return write_project(tmp_path / "project")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, translate: Translate) -> Path:
    """A run trained by the real command; tests must not change it."""
    folder = tmp_path_factory.mktemp("tiny")
    config = write_project(folder)
    done = translate("train", config, "--run", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="session")
def back_run(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, translate: Translate) -> Path:
    """A run on the same corpus that translates back; tests must not change it."""
    run = tmp_path_factory.mktemp("back") / "run"
    turned = ("data.source_lang=fr", "data.target_lang=en", "train.steps=20")
    done = translate("train", tiny_run.parent / "tiny.toml", *turned, "--no-test", "--run", run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture
def own_run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the tiny run that the test may damage."""
    copy = tmp_path / "own-run"
    shutil.copytree(tiny_run, copy)
    return copy


@pytest.fixture
def answer(command_line: Callable[..., Any]) -> Callable[..., str]:
    """Call a command that must succeed, and give back its stdout."""

    def call(*arguments: str | Path) -> str:
        result = command_line(*arguments)
        assert result.code == 0, result.err
        return str(result.out)

    return call
