"""The layers of the package: who may import whom, and what stays out of a quick `translate --help`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "translate"
# Each may import from itself and from those before it.
LAYERS = (
    "errors",
    "defaults",
    "machine",
    "config",
    "text",
    "alignment",
    "figures",
    "data",
    "kernels",
    "models",
    "device",
    "distributed",
    "run",
    "decoding",
    "evaluation",
    "training",
    "serve",
    "cli",
)
OUTSIDE = ("__init__.py", "__main__.py")
GRAB_BAGS = {"utils", "util", "helpers", "helper", "common", "misc"}
PROCESSORS = ("AMD", "Intel", "EPYC", "Ryzen", "Xeon", r"Zen \d", "Graviton")
FOR_SPEED = re.compile(rf"\bautograd\b.*\bFunction\b|\btorch\.ops\.|\bContextVar\b|\b(?:{'|'.join(PROCESSORS)})\b")
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
LAYERED = [module for module in MODULES if str(module) not in OUTSIDE]


def imports_of(source: str, package: str) -> set[str]:
    """The full name of everything a module of `package` imports, wherever in the module it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
    return found


def imports_in(module: Path) -> set[str]:
    package = ".".join(["translate", *module.parent.parts])
    return imports_of((PACKAGE / module).read_text(encoding="utf-8"), package)


def layer_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def test_every_kind_of_import_is_seen() -> None:
    source = """
import a.b
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from translate.cli import app
def late():
    from . import sibling
    from .state import State
    from ..training.loss import sequence_loss
    from translate import serve
    import importlib
    importlib.import_module("hidden.one")
"""
    assert imports_of(source, "translate.models") == {
        "a.b",
        "typing.TYPE_CHECKING",
        "translate.cli.app",
        "translate.models.sibling",
        "translate.models.state.State",
        "translate.training.loss.sequence_loss",
        "translate.serve",
        "importlib",
        "hidden.one",
    }


@pytest.mark.parametrize("module", LAYERED, ids=str)
def test_imports_go_upwards_only(module: Path) -> None:
    own = layer_of(module)
    assert own in LAYERS, f"{module} belongs to no layer: give it a place in the order"
    allowed = LAYERS[: LAYERS.index(own) + 1]
    used = {name.split(".")[1] for name in imports_in(module) if name.startswith("translate.")}
    assert used <= {*allowed, "__version__"}


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_only_figures_draws(module: Path) -> None:
    draws = any(name.split(".")[0] == "matplotlib" for name in imports_in(module))
    assert not draws or layer_of(module) == "figures"


@pytest.mark.parametrize("module", [m for m in MODULES if layer_of(m) in ("config", "errors")], ids=str)
def test_settings_and_errors_need_no_torch(module: Path) -> None:
    assert "torch" not in {name.split(".")[0] for name in imports_in(module)}


def test_errors_import_nothing() -> None:
    assert imports_in(Path("errors.py")) == set()


@pytest.mark.parametrize("module", [m for m in MODULES if layer_of(m) not in ("kernels", "machine")], ids=str)
def test_what_is_there_for_speed_is_a_kernel(module: Path) -> None:
    """Gradients by hand, torch's private operators, hidden state and what one processor does better than another."""
    source = (PACKAGE / module).read_text(encoding="utf-8")
    assert FOR_SPEED.findall(source) == []


def test_what_is_there_for_speed_is_found() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (PACKAGE / "kernels").glob("*.py")]
    sources.append((PACKAGE / "machine.py").read_text(encoding="utf-8"))
    found = {word for source in sources for word in FOR_SPEED.findall(source)}
    by_hand = "autograd.function import Function"
    assert {by_hand, "torch.ops.", "ContextVar", "AMD", "Zen 5"} <= found


def test_nothing_is_a_grab_bag() -> None:
    names = {part.removesuffix(".py") for module in MODULES for part in module.parts}
    assert not names & GRAB_BAGS


def test_the_command_line_loads_without_torch() -> None:
    code = "import sys, translate.cli.app; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(loaded.stdout.split())
    assert "typer" in names
    assert not names & {"torch", "matplotlib", "datasets", "sentencepiece", "sacrebleu"}


def test_help_is_quick() -> None:
    """By the processor's clock and the best of three, because a busy machine is not the program's fault."""
    seconds = []
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-m", "translate", "--help"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert "train" in process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        seconds.append(usage.ru_utime + usage.ru_stime)
    assert min(seconds) < 0.5
