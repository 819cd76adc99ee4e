"""A wheel, installed elsewhere, has all that the first job needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
SMALL = (
    *("train.steps=4", "train.valid_every=4", "train.threads=1", "search.beam=1", "logging.pictures=false"),
    *("model.embedding.width=12", "model.encoder.width=8", "model.attention.width=10", "model.decoder.width=16"),
)
# Programs of this environment, of the checkout and of the user's home must not be found by accident.
UNWANTED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNWANTED} | {
    **{"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    "COLUMNS": "200",
}


def call(*command: str | Path, cwd: Path, said: str | None = None) -> str:
    """Run a command that must succeed, and give back its stdout."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=ENVIRONMENT, input=said, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def can_build_here() -> bool:
    """Whether this environment has the setuptools that pyproject.toml asks for; else pip must fetch them."""
    try:
        return int(version("setuptools").partition(".")[0]) >= 77
    except PackageNotFoundError:
        return False


def build(folder: Path) -> Path:
    """The wheel of a copy of the sources, because setuptools takes up what an earlier build left beside them."""
    copy = folder / "sources"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("translate", "configs", "data/demo"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    isolation = ["--no-build-isolation"] if can_build_here() else []
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation]
    call(*wheel, "--wheel-dir", folder, copy, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel, and for all else looks into this one."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder)
    shutil.rmtree(folder / "sources")
    venv.create(folder / "venv", with_pip=False)
    programs = folder / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    call(*pip, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    # A path in a .pth file is searched for modules only: the .pth file of an editable installation there is not read.
    paths = sysconfig.get_paths()
    own = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    (Path(own) / "dependencies.pth").write_text(f"{paths['purelib']}\n{paths['platlib']}\n")
    return programs


def test_a_wheel_holds_every_file_of_the_package(installed: Path, tmp_path: Path) -> None:
    place = Path(call(installed / "python", "-c", "import translate; print(translate.__file__)", cwd=tmp_path).strip())
    assert place.is_relative_to(installed.parent), "not the wheel's"
    ours, wheels = (
        {
            str(path.relative_to(package)): path.read_bytes()
            for pattern in ("**/*", "text/demo/*")  # ** does not follow links
            for path in package.glob(pattern)
            if path.is_file() and "__pycache__" not in path.parts
        }
        for package in (ROOT / "translate", place.parent)
    )
    assert "text/demo/train.align" in ours
    assert sorted(wheels) == sorted(ours)
    assert wheels == ours
    assert not any(path.is_symlink() for path in place.parent.glob("text/*"))


def test_the_first_job_without_a_clone(installed: Path, tmp_path: Path) -> None:
    translate = installed / "translate"
    assert " init " in call(translate, "--help", cwd=tmp_path)
    assert "Next: translate train trial/config.toml" in call(translate, "init", "trial", "--demo", cwd=tmp_path)
    call(translate, "train", "trial/config.toml", *SMALL, cwd=tmp_path)
    answer = call(translate, "text", "runs/trial", cwd=tmp_path, said="the dog sleeps\n\n")
    assert answer.endswith("\n\n")
    assert answer.count("\n") == 2
