"""What the files around the code say agrees with the code and with each other."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import translate

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert {PROJECT["version"], translate.__version__, citation["version"]} == {PROJECT["version"]}
    assert citation["license"] == PROJECT["license"]


def test_the_pythons_are_the_same_everywhere() -> None:
    tested = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["fast"]["strategy"]["matrix"]["python"]
    start = "Programming Language :: Python :: 3."
    named = [line.removeprefix(start) for line in PROJECT["classifiers"] if line.startswith(start)]
    assert [f"3.{minor}" for minor in named] == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_only_read(workflow: Path) -> None:
    content = read(workflow)
    assert content["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in content["jobs"].values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_files_that_exist(workflow: Path) -> None:
    steps = [step for job in read(workflow)["jobs"].values() for step in job["steps"]]
    programs = {word for step in steps for word in step.get("run", "").split() if word.startswith("scripts/")}
    assert programs
    assert all((ROOT / program).is_file() for program in programs)
