"""Do the tests notice? Plants one small mistake at a time in `translate/` and runs the fast tests of its room.

    python scripts/mutate.py [--count N] [--seed S] [--room alignment ...] [--json]

A room is a package or a single module of `translate/`; its tests are `tests/ROOM` or `tests/test_<room>.py`. A mistake
is a comparison turned round, a constant moved by one, a condition inverted or a statement left out. The same seed draws
the same mistakes from the same source, and a larger --count draws those of a smaller one first. What cannot be noticed
is listed in scripts/equivalent_mutants.toml, each with its reason; it is counted and not run.

All runs happen in a temporary copy of the checkout. The tests run once without a mistake to see which lines each of
them reaches; a mistake is then shown to those tests alone that reach it, those of its own module first. A mistake that
no test reaches has survived, and so has one that all of them pass; one with which the tests hang is caught. Every run
is a fork of this process, which saves importing torch: the script needs a POSIX system.
"""

from __future__ import annotations

import argparse
import ast
import faulthandler
import importlib
import inspect
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "translate"
ROOMS = ("alignment", "evaluation", "data", "decoding", "text", "run")
EQUIVALENT = Path("scripts") / "equivalent_mutants.toml"
LIBRARIES = {"datasets", "hypothesis", "matplotlib", "numpy", "pyarrow", "pydantic", "rich", "sacrebleu"} | {
    "safetensors",
    "sentencepiece",
    "tensorboard",
    "torch",
    "typer",
}  # imported before the forks where the tests import them
PATIENCE = 5.0  # times as long as a test takes without a mistake, and some seconds more: then it hangs
MEMORY, FILE_SIZE = 12 << 30, 1 << 30  # bytes: a mistake may ask for any amount

Lines = set[tuple[str, int]]


# -- mistakes ----------------------------------------------------------------------------------------------------------

TURNED: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
"""Each comparison as a pattern, and what it becomes."""
INVERTED_BY_TURNING = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
MESSAGES = {"print", "warn", "echo", "secho", "add_argument", "Option", "Argument", "TypeVar"}
"""Calls whose arguments are texts for people, or names."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: what bytes of a file become, and how its lines read before and after."""

    room: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]
    """The first and the last line of the statement it is in, without the statements inside that one."""


class Planter:
    """Finds every place of a file where a small mistake can be made."""

    def __init__(self, room: str, file: str, source: bytes) -> None:
        self.room = room
        self.file = file
        self.source = source
        self.starts = [0]
        for line in source.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.found: list[Mutant] = []
        self.lines = (0, 0)
        self.bound: set[str] = set()

    def mutants(self) -> list[Mutant]:
        """All of them, from top to bottom."""
        self.block(ast.parse(self.source).body)
        return sorted(self.found, key=lambda one: (one.start, one.end, one.kind, one.text))

    def add(self, kind: str, start: int, end: int, text: str) -> None:
        begin = self.source.rfind(b"\n", 0, start) + 1
        stop = self.source.find(b"\n", end)
        stop = len(self.source) if stop < 0 else stop
        before, after = (
            " ".join((self.source[begin:start] + inner + self.source[end:stop]).decode().split())
            for inner in (self.source[start:end], text.encode())
        )
        line = self.source.count(b"\n", 0, start) + 1
        self.found.append(Mutant(self.room, self.file, line, kind, before, after, start, end, text, self.lines))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def replace(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        self.add(kind, *self.span(node), text)

    # -- statements

    def block(self, body: Sequence[ast.stmt], of_function: bool = False) -> None:
        for node in body:
            self.statement(node, last=of_function and node is body[-1])

    def statement(self, node: ast.stmt, last: bool) -> None:
        blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        below = [*blocks[0], *getattr(node, "handlers", []), *getattr(node, "cases", [])]
        end = node.end_lineno or node.lineno
        self.lines = (node.lineno, max(node.lineno, _first_line(below[0]) - 1) if below else end)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node)
            case ast.ClassDef():
                self.block(node.body)
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                self.block(node.orelse)
            case ast.If() | ast.While():
                self.condition(node.test)
                self.expression(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
                pass
            case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
                self.replace("statement", node, "pass")
            case ast.Return():
                if not last:
                    self.replace("statement", node, "pass")
                self.expression(node.value)
            case ast.Expr():
                if isinstance(node.value, ast.Call):
                    self.replace("statement", node, "pass")
                self.expression(node.value)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                self.assignment(node)
            case ast.Match():
                self.expression(node.subject)
                for case in node.cases:
                    if case.guard is not None:
                        self.lines = (case.pattern.lineno, case.guard.end_lineno or case.guard.lineno)
                        self.condition(case.guard)
                        self.expression(case.guard)
                    self.block(case.body)
            case _:
                self.bound |= _names(getattr(node, "target", None))
                for child in ast.iter_child_nodes(node):
                    if not isinstance(child, ast.stmt | ast.ExceptHandler):
                        self.expression(child)
                self.block(blocks[0])
                for handler in getattr(node, "handlers", []):
                    self.block(handler.body)
                for some in blocks[1:]:
                    self.block(some)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        for default in (*arguments.defaults, *arguments.kw_defaults):
            self.expression(default)
        outer = self.bound
        self.bound = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        self.block(node.body, of_function=True)
        self.bound = outer

    def assignment(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = set[str]().union(*map(_names, targets))
        if any(name.startswith("__") for name in names) or node.value is None:
            return
        stored = all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        if isinstance(node, ast.AugAssign) or stored or (names and names <= self.bound):
            self.replace("statement", node, "pass")  # a name that nothing else gives a value would be too easy
        self.bound |= names
        for target in targets:
            self.expression(target)
        self.expression(node.value)

    # -- expressions

    def condition(self, test: ast.expr) -> None:
        """Invert it, unless turning its only comparison does so or it is constant."""
        turned = isinstance(test, ast.Compare) and isinstance(test.ops[0], INVERTED_BY_TURNING)
        if not turned and not isinstance(test, ast.Constant):
            start, end = self.span(test)
            self.add("condition", start, end, f"(not ({self.source[start:end].decode()}))")

    def expression(self, node: ast.AST | None) -> None:
        match node:
            case None | ast.JoinedStr() | ast.Name():
                return
            case ast.Constant():
                self.constant(node)
                return
            case ast.Compare():
                self.comparison(node)
            case ast.BoolOp():
                word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    self.between("condition", left, right, rf"\b{word}\b", other)
            case ast.IfExp():
                self.condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    self.condition(test)
            case ast.Call():
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in MESSAGES or name.endswith(("Error", "Warning")):
                    return
                self.expression(node.func)
                for argument in node.args:
                    self.expression(argument)
                for keyword in node.keywords:
                    if keyword.arg != "strict":  # of zip: an assertion of our own
                        self.expression(keyword.value)
                return
            case ast.Lambda():
                self.expression(node.body)
                return
        for child in ast.iter_child_nodes(node):
            self.expression(child)

    def constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self.replace("constant", node, repr(node.value + 1))

    def comparison(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            pattern, others = TURNED[type(operator)]
            for other in others:
                self.between("comparison", left, right, pattern, other)

    def between(self, kind: str, left: ast.expr, right: ast.expr, pattern: str, text: str) -> None:
        """Replace the operator between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), self.source[start:end])
        operator = re.search(pattern.encode(), gap)
        assert operator is not None, (self.file, left.lineno)
        self.add(kind, start + operator.start(), start + operator.end(), text)


def _first_line(node: Any) -> int:
    """Of a statement with its decorators, a handler or a case."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])


def _names(target: ast.AST | None) -> set[str]:
    """The names that an assignment to a target binds."""
    match target:
        case ast.Name():
            return {target.id}
        case ast.Tuple() | ast.List():
            return set[str]().union(*map(_names, target.elts))
        case ast.Starred():
            return _names(target.value)
    return set()


def room_files(checkout: Path, room: str) -> list[Path]:
    """The Python files of a room."""
    single = checkout / PACKAGE / f"{room}.py"
    return [single] if single.is_file() else sorted((checkout / PACKAGE / room).rglob("*.py"))


def room_tests(checkout: Path, room: str) -> Path:
    """The tests of a room, from the checkout's top."""
    single = Path("tests") / f"test_{room}.py"
    return single if (checkout / single).is_file() else Path("tests") / room


def room_mutants(checkout: Path, room: str) -> list[Mutant]:
    """Every mistake that can be planted in a room."""
    return [
        mutant
        for path in room_files(checkout, room)
        for mutant in Planter(room, path.relative_to(checkout).as_posix(), path.read_bytes()).mutants()
    ]


def draw(mutants: Sequence[Mutant], room: str, seed: int, count: int) -> list[Mutant]:
    """Some of a room's mistakes; more of them begin with the same."""
    shuffled = list(mutants)
    random.Random(f"{seed} {room}").shuffle(shuffled)
    return shuffled[:count]


def read_equivalent(checkout: Path) -> dict[tuple[str, str, str], str]:
    """What cannot be noticed, by file and lines before and after, with the reason."""
    path = checkout / EQUIVALENT
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"] if path.is_file() else []
    return {(row["file"], row["before"], row["after"]): row["reason"] for row in rows}


# -- runs of the tests -------------------------------------------------------------------------------------------------


@contextmanager
def workplace() -> Iterator[Path]:
    """A temporary folder; what a test that was ended has mounted in it is taken off first."""
    with tempfile.TemporaryDirectory(prefix="mutate-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        try:
            yield folder
        finally:
            mounts = Path("/proc/self/mounts")
            places = [line.split(" ")[1] for line in mounts.read_text().splitlines()] if mounts.is_file() else []
            for place in places:
                if Path(place).is_relative_to(folder):
                    subprocess.run(["umount", place], check=False)


def copy_checkout(checkout: Path, copy: Path) -> None:
    """Copy what git knows and what it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        if (checkout / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, copy / name)


@dataclass
class Baseline:
    """What the fast tests of a room do without a mistake."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By the test's id, for those that pass."""
    reached: dict[str, Lines] = field(default_factory=dict)
    """The lines of the room that a test or the fixtures of its file reach."""
    imported: Lines = field(default_factory=set)
    """Lines that run when a module is imported or tests are collected: any test may depend on them."""
    outside: set[str] = field(default_factory=set)
    """Tests that start processes, which may reach any line."""
    failed: list[str] = field(default_factory=list)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mistake: those of its own module first, then the quickest."""
        lines = {(mutant.file, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
        own = f"/test_{Path(mutant.file).stem}.py"
        chosen = [
            test
            for test, reached in self.reached.items()
            if test in self.seconds and (test in self.outside or not lines.isdisjoint(reached | self.imported))
        ]
        return sorted(chosen, key=lambda test: (own not in test, self.seconds[test], test))


class Recorder:
    """A plugin of pytest that follows which lines of a room each test reaches."""

    def __init__(self, copy: Path, files: Sequence[Path]) -> None:
        self.names = {str(path): path.relative_to(copy).as_posix() for path in files}
        self.found = Baseline()
        self.fixtures: dict[str, Lines] = {}
        self.current: Lines = self.found.imported
        self.test = ""
        sys.addaudithook(self.audit)

    def audit(self, event: str, _: Any) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"):
            self.found.outside.add(self.test)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        name = self.names.get(frame.f_code.co_filename)
        if name is None:
            return None
        always = not frame.f_code.co_flags & inspect.CO_OPTIMIZED  # a module or the body of a class

        def follow(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                (self.found.imported if always else self.current).add((name, frame.f_lineno))
            return follow

        return follow

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self.test = item.nodeid
        self.current = self.fixtures.setdefault(item.nodeid.partition("::")[0], set())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        self.current = self.found.reached.setdefault(item.nodeid, set())
        sys.settrace(self.trace)  # a test may have taken it away
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        self.current = self.fixtures[item.nodeid.partition("::")[0]]
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.found.seconds[report.nodeid] = report.duration

    def write(self, path: Path) -> None:
        """The findings, and which libraries were imported."""
        baseline = self.found
        tests = {
            test: [baseline.seconds[test], sorted(lines | self.fixtures[test.partition("::")[0]])]
            for test, lines in baseline.reached.items()
            if test in baseline.seconds and test not in baseline.failed
        }
        about = {
            "tests": tests,
            "imported": sorted(baseline.imported),
            "outside": sorted(baseline.outside),
            "failed": sorted(set(baseline.failed)),
            "libraries": sorted(LIBRARIES & set(sys.modules)),
        }
        path.write_text(json.dumps(about))


class Chosen:
    """A plugin of pytest that runs the chosen tests in their order, and those that were not there before.

    A test that takes longer than its limit in seconds ends the process and leaves a trace in `hung`.
    """

    def __init__(self, limits: Mapping[str, float], known: set[str], hung: TextIO) -> None:
        self.limits = limits
        self.places = {test: place for place, test in enumerate(limits)}
        self.known = known
        self.hung = hung

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        limit = self.limits.get(item.nodeid, max(self.limits.values()))
        faulthandler.dump_traceback_later(limit, exit=True, file=self.hung)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.places or item.nodeid not in self.known]
        items[:] = sorted(kept, key=lambda item: self.places.get(item.nodeid, len(self.places)))


def forked(work: Callable[[], int], log: Path, seconds: float) -> int | None:
    """The exit code of some work in a fork of this process, or None if it took longer; what it says is in the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            for descriptor, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, _writing(log)), (2, _writing(log))):
                os.dup2(target, descriptor)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
            code = work()
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    pause = 0.005
    while time.monotonic() < end:
        if (ended := os.waitpid(child, os.WNOHANG))[0]:
            _kill(child)
            return os.waitstatus_to_exitcode(ended[1])
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    _kill(child)
    os.waitpid(child, 0)
    return None


def _writing(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _kill(group: int) -> None:
    """End what is left of a fork and of the processes it started."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def run_tests(copy: Path, paths: Sequence[str], plugin: object, bytecode: bool) -> int:
    """Run fast tests of the copy in this process, which has imported nothing of any checkout yet."""
    import hypothesis

    os.chdir(copy)
    sys.dont_write_bytecode = not bytecode
    temporary = copy.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(temporary)}
    ours = {ROOT, ROOT / "scripts"}
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path or ".").resolve() not in ours)]
    # The same examples in every run; a failing one need not be made smaller.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutate",
        derandomize=True,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutate")
    options = ["-x"] if isinstance(plugin, Chosen) else []
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(copy), "-m", "not slow", "--tb", "line", *options]
    return int(pytest.main([*arguments, *paths], plugins=[plugin]))


class Room:
    """A room of the copy with what its tests reach."""

    def __init__(self, copy: Path, name: str, patience: float) -> None:
        self.copy = copy
        self.name = name
        self.patience = patience
        self.log = copy.parent / "log"
        self.baseline = self._without_mistake()
        code = self._run(list(self.baseline.seconds))
        if code != pytest.ExitCode.OK:
            said = self.log.read_text(errors="replace")
            raise RuntimeError(f"{name}: what passed before fails without any mistake (exit code {code}):\n{said}")

    def _without_mistake(self) -> Baseline:
        out = self.copy.parent / "baseline.json"
        tests = str(room_tests(self.copy, self.name))

        def work() -> int:
            recorder = Recorder(self.copy, room_files(self.copy, self.name))
            threading.settrace(recorder.trace)
            sys.settrace(recorder.trace)
            code = run_tests(self.copy, [tests], recorder, bytecode=True)
            sys.settrace(None)
            recorder.write(out)
            return code

        code = forked(work, self.log, 1800)
        if code not in (0, 1):
            raise RuntimeError(f"{tests} cannot be run (exit code {code}):\n{self.log.read_text(errors='replace')}")
        about = json.loads(out.read_text())
        for library in about["libraries"]:
            importlib.import_module(library)
        return Baseline(
            seconds={test: seconds for test, (seconds, _) in about["tests"].items()},
            reached={test: {(name, line) for name, line in lines} for test, (_, lines) in about["tests"].items()},
            imported={(name, line) for name, line in about["imported"]},
            outside=set(about["outside"]),
            failed=about["failed"],
        )

    def _run(self, tests: Sequence[str]) -> int | None:
        """How pytest ends with these tests in this order, up to the first that fails."""
        paths = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        limits = {test: self.patience + PATIENCE * self.baseline.seconds[test] for test in tests}
        known = set(self.baseline.seconds) | set(self.baseline.failed)
        self.log.unlink(missing_ok=True)
        with (self.copy.parent / "hung").open("w") as hung:
            chosen = Chosen(limits, known, hung)
            code = forked(
                lambda: run_tests(self.copy, paths, chosen, bytecode=False), self.log, 60 + sum(limits.values())
            )
            return None if os.fstat(hung.fileno()).st_size else code

    def catches(self, mutant: Mutant) -> tuple[bool, str]:
        """Do the tests notice a mistake, and by what?"""
        tests = self.baseline.tests_of(mutant)
        if not tests:
            return False, "no test reaches it"
        path = self.copy / mutant.file
        source = path.read_bytes()
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.end :])
        try:
            code = self._run(tests)
        finally:
            path.write_bytes(source)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return False, f"{len(tests)} tests reach it"
        return True, "hangs" if code is None else _failure(self.log.read_text(errors="replace"))


def _failure(log: str) -> str:
    """The first test that failed, from the summary of pytest."""
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", log, re.MULTILINE)
    return named[1] if named else (log.strip().splitlines() or ["nothing was said"])[-1][:200]


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a mistake."""

    mutant: Mutant
    fate: str
    """caught, survived or equivalent."""
    by: str
    """The test that failed, how many tests reach it, or why nothing can notice it."""


@dataclass(frozen=True)
class Row:
    """The figures of a room."""

    room: str
    places: int
    planted: int
    caught: int
    survived: int
    equivalent: int
    seconds: float


def try_room(copy: Path, name: str, seed: int, count: int, patience: float) -> tuple[Row, list[Outcome]]:
    """Plant some mistakes in a room, one after the other."""
    start = time.monotonic()
    every = room_mutants(copy, name)
    equivalent = read_equivalent(copy)
    places = {(mutant.file, mutant.before, mutant.after) for mutant in every}
    files = {mutant.file for mutant in every}
    for file, before, _ in equivalent.keys() - places:
        if file in files:
            print(f"{EQUIVALENT}: nothing of {file} fits {before!r} any more", file=sys.stderr)
    room = Room(copy, name, patience)
    for test in room.baseline.failed:
        print(f"{name}: {test} fails without any mistake and is left out", file=sys.stderr)
    outcomes = []
    for number, mutant in enumerate(draw(every, name, seed, count), start=1):
        reason = equivalent.get((mutant.file, mutant.before, mutant.after))
        if reason is not None:
            outcomes.append(Outcome(mutant, "equivalent", reason))
            continue
        is_caught, by = room.catches(mutant)
        outcomes.append(Outcome(mutant, "caught" if is_caught else "survived", by))
        said = f"{mutant.file}:{mutant.line} {'caught' if is_caught else 'SURVIVED'} ({by})"
        print(f"{name} {number}, {time.monotonic() - start:.0f} s: {said}", file=sys.stderr, flush=True)
    fates = [outcome.fate for outcome in outcomes]
    row = Row(
        room=name,
        places=len(every),
        planted=len(outcomes),
        caught=fates.count("caught"),
        survived=fates.count("survived"),
        equivalent=fates.count("equivalent"),
        seconds=round(time.monotonic() - start, 1),
    )
    return row, outcomes


def total(rows: Sequence[Row]) -> Row:
    """The sum of all rooms."""
    sums = {name: sum(getattr(row, name) for row in rows) for name in Row.__dataclass_fields__ if name != "room"}
    return Row("all", **sums)


def show(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
    """The table by room, and what survived."""
    print(f"{'room':<12}{'places':>8}{'planted':>9}{'caught':>8}{'survived':>10}{'equivalent':>12}{'share':>8}{'s':>7}")
    for row in [*rows, total(rows)] if len(rows) > 1 else rows:
        tried = row.planted - row.equivalent
        share = f"{100 * row.caught / tried:.0f} %" if tried else "-"
        counts = f"{row.places:>8}{row.planted:>9}{row.caught:>8}{row.survived:>10}{row.equivalent:>12}"
        print(f"{row.room:<12}{counts}{share:>8}{row.seconds:>7.0f}")
    print("\nshare: caught of those planted that are not equivalent")
    for fate, title in (("survived", "Survivors"), ("equivalent", "Equivalent")):
        chosen = [outcome for outcome in outcomes if outcome.fate == fate]
        if chosen:
            print(f"\n{title}:")
        for outcome in chosen:
            mutant = outcome.mutant
            print(f"{mutant.file}:{mutant.line} ({outcome.by})\n  - {mutant.before}\n  + {mutant.after}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=15, help="mistakes for each room (default: 15)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other mistakes (default: 1)")
    parser.add_argument("--room", nargs="+", default=list(ROOMS), help=f"default: {' '.join(ROOMS)}")
    parser.add_argument(
        "--patience",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help=f"beyond {PATIENCE:.0f} times the tests' own time (default: 5)",
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the folder of another checkout")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, with every mistake")
    options = parser.parse_args(arguments)
    checkout = options.checkout.resolve()
    for room in options.room:
        if not room_files(checkout, room) or not (checkout / room_tests(checkout, room)).exists():
            parser.error(
                f"--room {room}: {checkout} has no {PACKAGE}/{room} with tests in {room_tests(checkout, room)}"
            )
    os.environ["OMP_NUM_THREADS"] = "1"
    rows, outcomes = [], []
    with workplace() as temporary:
        copy = temporary / "checkout"
        copy_checkout(checkout, copy)
        for room in options.room:
            row, found = try_room(copy, room, options.seed, options.count, options.patience)
            rows.append(row)
            outcomes += found
    if options.json:
        print(json.dumps({"seed": options.seed, "rooms": list(map(asdict, rows)), "mutants": _as_json(outcomes)}))
    else:
        show(rows, outcomes)
    return 0


def _as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    keys = ("room", "file", "line", "kind", "before", "after")
    return [{**{key: getattr(one.mutant, key) for key in keys}, "fate": one.fate, "by": one.by} for one in outcomes]


if __name__ == "__main__":
    sys.exit(main())
