"""`--plugin`: members of one's own from a file that the user names, in every command that builds or reads a model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CHOICES = {
    "euclidean.py": "model.attention.score=euclidean",
    "window_encoder.py": "model.encoder.kind=window",
    "gated_decoder.py": "model.decoder.kind=gated",
}
Translate = Callable[..., subprocess.CompletedProcess[str]]

SCORE = '''
import torch
from translate.models.scores import General

class Halved(General):
    """Half of general."""

    name = "{name}"
    formula = "qᵀ W m / 2"
    paper = "none: a test"
    when = "Never."
    {more}

    def total(self, queries, keys):
        return super().total(queries, keys) / 2
'''


def test_every_example_is_tried() -> None:
    assert CHOICES.keys() == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_an_example_trains_and_translates(name: str, project: Path, translate: Translate) -> None:
    """Each command runs in a process of its own, which knows no plugin but the one that it is given."""
    run, plugin = project.parent / "run", ("--plugin", EXAMPLES / name)
    short = ("train.steps=4", "train.valid_every=4", "--no-test", "--run", run)
    done = translate("train", project, *plugin, CHOICES[name], *short)
    assert done.returncode == 0, done.stderr
    with_it = translate("text", run, *plugin, input="the dog sleeps\n\n")
    assert with_it.returncode == 0, with_it.stderr
    assert with_it.stdout.count("\n") == 2
    without = translate("text", run, input="the dog sleeps\n")
    assert without.returncode == 2
    assert f"--plugin {name}" in without.stderr
    shown = translate("info", run, "--json", *plugin)
    assert json.loads(shown.stdout)["plugins"] == [f"{name} ({CHOICES[name].removeprefix('model.')})"]


@pytest.mark.slow
def test_a_changed_plugin_is_named_and_does_not_resume(project: Path, translate: Translate) -> None:
    run, plugin = project.parent / "run", project.parent / "halved.py"
    plugin.write_text(SCORE.format(name="halved", more=""))
    words = ("train", project, "--plugin", plugin, "model.attention.score=halved", "--no-test", "--run", run)
    done = translate(*words, "train.steps=4", "train.valid_every=4")
    assert done.returncode == 0, done.stderr
    (note,) = json.loads((run / "environment.json").read_text())["plugins"]
    assert note["members"] == ["attention.score=halved"]
    plugin.write_text(plugin.read_text().replace("/ 2", "/ 3"))
    again = translate(*words, "train.steps=8", "train.valid_every=4", "--resume")
    assert again.returncode == 2
    assert "halved.py has changed" in again.stderr
    read = translate("text", run, "--plugin", plugin, input="the dog sleeps\n")
    assert read.returncode == 0
    assert read.stderr.count("halved.py has changed") == 1
    plugin.rename(plugin.with_name("other.py"))  # the name does not matter
    read = translate("text", run, "--plugin", plugin.with_name("other.py"), input="the dog sleeps\n")
    assert read.returncode == 0


@pytest.mark.slow
def test_a_run_never_loads_code(tiny_run: Path, tmp_path: Path, translate: Translate) -> None:
    """A plugin that lies in a run, under the name that the run notes, is not run."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    for place in (run, tmp_path):
        (place / "evil.py").write_text("raise SystemExit('executed')")
    note = {"name": "evil.py", "sha256": "0" * 64, "members": ["attention.score=evil"]}
    (run / "environment.json").write_text(json.dumps({"plugins": [note]}))
    done = translate("text", run, input="the dog sleeps\n", cwd=tmp_path)
    assert done.returncode == 2
    assert "executed" not in done.stderr
    assert "--plugin evil.py" in done.stderr


@pytest.mark.parametrize("content", ["[]", "{", '{"plugins": 1}', '{"plugins": [{}]}', "[" * 100_000])
def test_a_damaged_note_is_refused(content: str, own_run: Path, command_line: Callable[..., Any]) -> None:
    (own_run / "environment.json").write_text(content)
    result = command_line("info", own_run)
    assert result.code == 2
    assert "environment.json" in result.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("x = (", "plugin.py:1: SyntaxError"),
        ("import torch\n\n1 / 0\n", "plugin.py:3: ZeroDivisionError"),
        ("x = 1\n", "it defines no member"),
        (SCORE.format(name="general", more=""), "attention.score = 'general' already"),
        (SCORE.format(name="Half life", more=""), "name = 'Half life'"),
        (SCORE.format(name="halved", more="supports = ('layers',)"), "supports holds 'layers'"),
        (SCORE.format(name="halved", more="supports = 'heads'"), "supports = 'heads'"),
        (
            SCORE.format(name="halved", more="width_divided_by_heads = ('width',)"),
            "width_divided_by_heads holds 'width'",
        ),
        (SCORE.format(name="halved", more="").replace("formula", "formel"), "must define its own `formula`"),
    ],
)
def test_a_wrong_plugin_is_refused(
    content: str | None, said: str, tmp_path: Path, command_line: Callable[..., Any]
) -> None:
    plugin = tmp_path / "plugin.py"
    if content is not None:
        plugin.write_text(content)
    result = command_line("zoo", "--plugin", plugin)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_score_that_splits_its_width_is_refused_as_a_built_in_one(
    project: Path, command_line: Callable[..., Any]
) -> None:
    widths = ("model.decoder.width=250", "model.attention.heads=4")
    plugin = ("--plugin", EXAMPLES / "euclidean.py", "model.attention.score=euclidean")
    result = command_line("train", project, *plugin, *widths, "--run", project.parent / "run")
    assert result.code == 2
    assert "attention.heads = 4 does not divide decoder.width = 250" in result.err
    assert not (project.parent / "run").exists()


def test_the_zoo_shows_a_plugin(answer: Callable[..., str]) -> None:
    shown = answer("zoo", "--plugin", EXAMPLES / "euclidean.py")
    assert "−|q − k|² / √d" in shown
    assert "How near a key lies to the query." in shown


@pytest.mark.slow
def test_the_parametrised_tests_take_an_example_in(environment: dict[str, str]) -> None:
    """In a process of its own, because members are read when tests are collected."""
    plugins = [word for name in CHOICES for word in ("--plugin", str(EXAMPLES / name))]
    members = [choice.rpartition("=")[2] for choice in CHOICES.values()]
    options = ["-m", "not slow", "-k", " or ".join(members), "-rp", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/models", "tests/decoding", *options, *plugins],
        cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    for member in members:
        assert len(re.findall(rf"^PASSED .*\[.*{member}", done.stdout, re.MULTILINE)) > 50
