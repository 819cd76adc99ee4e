"""How large and how tangled the code is: lines, autograd functions, long files, long and complex functions.

    python scripts/measure_code.py [COMMIT_OR_FOLDER ...] [--list] [--json]

Each argument is a folder that holds a checkout, or a revision of this repository, for which a worktree is made for a
while; without any, this working tree is measured. Lines are those of Python files, blank ones and comments included.
Complexity is McCabe's, as ruff counts it. --list also names what is counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from checkouts import ROOT, checked_out

from translate.errors import UserError

MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_COMPLEXITY = 400, 60, 12
PACKAGES = ("translate/models", "translate/kernels", "translate")
KERNELS = "translate/kernels"
TREES = ("translate", "scripts", "tests")
AUTOGRAD = ("torch.autograd", "torch.autograd.function")  # modules that have `Function`


@dataclass(frozen=True)
class Findings:
    """What is too long or too complex in a tree, each with its place and size."""

    files: list[str]
    functions: list[str]
    complex: list[str]


@dataclass(frozen=True)
class Code:
    """The measurements of one commit."""

    commit: str
    lines: dict[str, int]
    """By package."""
    autograd: list[str]
    """Autograd functions that are not in kernels/."""
    trees: dict[str, Findings]


# -- measurements ------------------------------------------------------------------------------------------------------


def python_files(folder: Path) -> list[Path]:
    """The Python files of a folder, none where it is missing."""
    return sorted(folder.rglob("*.py"))


def count_lines(file: Path) -> int:
    """As `wc -l` counts them."""
    return file.read_bytes().count(b"\n")


def autograd_names(tree: ast.Module) -> set[str]:
    """What `torch.autograd.Function` is called in a module."""
    names = {f"{module}.Function" for module in AUTOGRAD} | {"autograd.Function"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in AUTOGRAD:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "Function"}
    return names


def autograd_functions(checkout: Path) -> list[str]:
    """The classes outside kernels/ that are derived from `torch.autograd.Function`."""
    found = []
    for file in python_files(checkout / "translate"):
        place = file.relative_to(checkout)
        if place.is_relative_to(KERNELS):
            continue
        tree = ast.parse(file.read_bytes())
        names = autograd_names(tree)
        found += [
            f"{place}:{node.lineno} {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and names & {ast.unparse(base) for base in node.bases}
        ]
    return found


def long_functions(checkout: Path, file: Path) -> Iterator[str]:
    """Functions and methods with too many lines, from `def` to their last."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            size = node.end_lineno - node.lineno + 1
            if size > MOST_FUNCTION_LINES:
                yield f"{file.relative_to(checkout)}:{node.lineno} {node.name} ({size})"


def complex_functions(checkout: Path, tree: str) -> list[str]:
    """What ruff's C901 finds, whatever the checkout's own settings and comments say of it."""
    limit = f"lint.mccabe.max-complexity={MOST_COMPLEXITY}"
    options = ("--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format", "json")
    command = [sys.executable, "-m", "ruff", "check", *options, "--select", "C901", "--config", limit]
    done = subprocess.run([*command, str(checkout / tree)], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise UserError(f"ruff cannot be run: {done.stderr.strip()}. `pip install -e '.[dev]'` installs it.")
    return [
        f"{Path(one['filename']).relative_to(checkout)}:{one['location']['row']} {one['message']}"
        for one in json.loads(done.stdout)
    ]


def findings(checkout: Path, tree: str) -> Findings:
    """What is too long or too complex in a tree."""
    files = python_files(checkout / tree)
    sizes = {file: count_lines(file) for file in files}
    return Findings(
        [f"{file.relative_to(checkout)} ({size})" for file, size in sizes.items() if size > MOST_FILE_LINES],
        [one for file in files for one in long_functions(checkout, file)],
        complex_functions(checkout, tree) if files else [],
    )


def measure(commit: str, checkout: Path) -> Code:
    """All measurements of a checkout."""
    lines = {package: sum(map(count_lines, python_files(checkout / package))) for package in PACKAGES}
    trees = {tree: findings(checkout, tree) for tree in TREES}
    return Code(commit, lines, autograd_functions(checkout), trees)


# -- the program -------------------------------------------------------------------------------------------------------


def table(code: Code) -> dict[str, int | list[str]]:
    """The rows of a commit: lines, or the names of what is counted."""
    rows: dict[str, int | list[str]] = {f"lines of {package}": count for package, count in code.lines.items()}
    rows["autograd functions outside kernels"] = code.autograd
    for tree, found in code.trees.items():
        rows[f"{tree}: files over {MOST_FILE_LINES} lines"] = found.files
        rows[f"{tree}: functions over {MOST_FUNCTION_LINES} lines"] = found.functions
        rows[f"{tree}: functions of complexity over {MOST_COMPLEXITY}"] = found.complex
    return rows


def show(codes: Sequence[Code], named: bool) -> None:
    """One column for each commit, and below it the names where they are asked for."""
    tables = [table(code) for code in codes]
    width = max(map(len, tables[0]))
    widths = [max(10, len(code.commit)) for code in codes]
    print(" " * width, *(f"{code.commit:>{size}}" for code, size in zip(codes, widths, strict=True)))
    for row in tables[0]:
        values = [one[row] for one in tables]
        counts = [value if isinstance(value, int) else len(value) for value in values]
        print(f"{row:<{width}}", *(f"{count:>{size},}" for count, size in zip(counts, widths, strict=True)))
    for code, one in zip(codes, tables, strict=True):
        for row, value in one.items():
            if named and isinstance(value, list) and value:
                print(f"\n{code.commit}: {row}", *value, sep="\n  ")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("commits", nargs="*", metavar="COMMIT_OR_FOLDER", help="this working tree if left out")
    parser.add_argument("--list", action="store_true", help="also name what is counted")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, with all names")
    options = parser.parse_args(arguments)
    codes = []
    try:
        for commit in options.commits or [str(ROOT)]:
            with checked_out(commit) as checkout:
                codes.append(measure(commit if options.commits else "working tree", checkout))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"commits": [asdict(code) for code in codes]}))
    else:
        show(codes, options.list)
    return 0


if __name__ == "__main__":
    sys.exit(main())
