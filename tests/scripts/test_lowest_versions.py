"""The lowest versions that the project allows are read off its requirements."""

from __future__ import annotations

import tomllib
from pathlib import Path

import lowest_versions as script
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_lower_bound_is_taken() -> None:
    requirements = ["torch>=2.10,<2.14", "tomli-w >= 1", "pytest>=8.0.1, !=8.1"]
    assert script.lowest(requirements) == ["torch==2.10", "tomli-w==1", "pytest==8.0.1"]


@pytest.mark.parametrize("requirement", ["numpy", "numpy<2", "numpy==2", "numpy~=2.1", "numpy<3,>=2"])
def test_no_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="begins with no lowest version"):
        script.lowest(["torch>=2.10", requirement])


def test_every_dependency_of_the_project_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    script.main()
    names = [line.partition("==")[0] for line in capsys.readouterr().out.splitlines()]
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert len(names) == len(requirements)
    assert all(requirement.startswith(name) for name, requirement in zip(names, requirements, strict=True))
