"""The documents: links lead somewhere, commands exist, and what can run on a tiny corpus is run as it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.documents import (
    DOCUMENTS,
    LANGUAGES,
    ROOT,
    Command,
    anchors,
    commands,
    links,
    spans,
    split,
    stages,
    translate_arguments,
)
from tests.test_layers import LAYERS
from tests.zoo_state import restored_zoo
from translate.cli.app import app
from translate.config import load_config
from translate.errors import ConfigError

INDEX = ROOT / "docs" / "README.md"
DEMO = ROOT / "configs" / "demo.toml"
# Programs that are not ours.
OTHERS = {"printf", "echo", "mkdir", "cp", "head", "tail", "sacrebleu", "pytest"}

# What no test runs, by how it begins, and why.
NOT_RUN = {
    "scripts/demo": "installs from the network, then trains for minutes",
    "scripts/test": "runs this test",
    "pytest ": "runs tests; tests/cli/test_plugins.py does the same for all examples",
    "torchrun --nproc-per-node": "starts processes that meet over the network; tests/test_distributed.py does it",
    "torchrun --nnodes": "needs two machines",
    "translate data fetch": "needs the network; tests/text/test_fetch.py fetches from a server of its own",
    "translate train configs/multi30k": "needs a corpus of the network and an hour; tests/test_configs.py takes a step",
    "translate train mine/config.toml": "trains a model of full size for minutes",
    "python scripts/write_": "writes into this repository; tests/scripts compares what it would write",
    "python scripts/bench_kernels.py": "takes half an hour on a machine where nothing else runs",
    ".venv/bin/python scripts/compare_zoo.py": "takes hours",
}
# What is added to a command, so that it takes seconds: before the user's own overrides, or at the end.
SMALL = (
    *("tokenizer.vocabulary=300", "model.embedding.width=16", "model.encoder.width=8", "model.attention.width=16"),
    *("model.decoder.width=16", "train.steps=4", "train.valid_every=4", "train.batch_tokens=600", "train.threads=1"),
    *("logging.tensorboard=false", "logging.pictures=false", "logging.samples=0", "search.beam=2"),
)
SHORT = {"head": ("--steps", "3", "--width", "8"), "compare": ("--samples", "20", "--trials", "20")}


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def reason(command: Command) -> str | None:
    """Why a command is not run."""
    return next((why for start, why in NOT_RUN.items() if command.text.startswith(start)), None)


RUNNABLE = [document for document in DOCUMENTS if any(reason(command) is None for command in commands(document))]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=named)


# -- links ------------------------------------------------------------------------------------------------------------


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{named(document)}: {link} does not exist"
        assert target.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(target), f"{named(document)}: {link}: no such heading"


MENTIONED = re.compile(r"\b(?:docs|tests|scripts|translate|configs|examples)/[\w./-]*\w\.(?:md|py|toml|png|sh)\b")


def test_files_that_are_mentioned_exist() -> None:
    sources = [path for folder in ("translate", "scripts", "examples") for path in (ROOT / folder).rglob("*.py")]
    for path in [*DOCUMENTS, *sources, *(ROOT / "configs").glob("*.toml")]:
        for mentioned in MENTIONED.findall(path.read_text(encoding="utf-8")):
            assert (ROOT / mentioned).exists(), f"{named(path)} mentions {mentioned}"


def test_the_index_lists_every_document() -> None:
    decisions = INDEX.parent / "decisions" / "README.md"
    for index in (INDEX, decisions):
        listed = {(index.parent / link).resolve() for link in links(index)}
        inside = {document for document in DOCUMENTS if (document.parent == decisions.parent) == (index == decisions)}
        assert inside - listed == {index}


def test_every_decision_has_a_date() -> None:
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        paragraphs = page.read_text(encoding="utf-8").split("\n\n")
        without = [text[:60] for text in paragraphs if text.startswith("**")]
        assert not without, f"{named(page)}: put the date before it, as in *2026-11-16.*"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170


def test_the_map_lists_the_layers_in_their_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)(?:\.py|/)` \|", text, flags=re.MULTILINE)
    parts = {path.stem for path in (ROOT / "translate").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert listed == [layer for layer in LAYERS if layer in parts]


def test_the_map_names_what_exists() -> None:
    """In architecture.md a file stands before the functions that are in it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    text = text[text.index("## One sentence") :]
    found = re.findall(r"`([\w/]+\.py)` (`[\w.]+`(?:, `[\w.]+`)*)", text)
    assert len(found) > 50
    for file, names in found:
        source = (ROOT / "translate" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                assert re.search(rf"\b(?:def|class) {part}\b", source), f"{file} has no {name}"


# -- commands ---------------------------------------------------------------------------------------------------------


@each_document
def test_every_block_says_what_it_is(document: Path) -> None:
    for block in split(document)[0]:
        assert block.language in LANGUAGES, f"{named(document)}:{block.line}: ```{block.language}"


def parse(arguments: list[str], partial: bool = False) -> None:
    """Read arguments as the command line would; `partial` ones may lack some."""
    command: Any = typer.main.get_command(app)
    rest, name = list(arguments), "translate"
    while hasattr(command, "commands"):
        if not rest or rest[0].startswith("-"):
            return
        name = rest.pop(0)
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    for parameter in command.params:
        if parameter.name == "plugin":
            parameter.callback = None  # it would load the file
    try:
        command.make_context(name, rest)
    except Exception as error:
        if type(error).__name__ in ("Exit", "NoArgsIsHelpError"):
            return
        if not (partial and type(error).__name__ == "MissingParameter"):
            raise


def check_settings(arguments: list[str]) -> None:
    """The overrides of `train` name settings that exist; those of a plugin's members are checked where it is run."""
    if arguments[:1] != ["train"] or "--plugin" in arguments:
        return
    config = next((ROOT / word for word in arguments if word.endswith(".toml") and (ROOT / word).is_file()), DEMO)
    load_config(config, [word for word in arguments[1:] if re.match(r"[a-z_.]+=", word)])


def check_other(words: list[str], where: str) -> None:
    """A script exists and has the options; any other program is known."""
    if words[0].endswith("python"):
        words = words[1:]
    if not words[0].startswith("scripts/"):
        assert words[0] in OTHERS, f"{where}: {words[0]}"
        return
    source = (ROOT / words[0]).read_text(encoding="utf-8")
    for option in (word for word in words[1:] if word.startswith("--")):
        assert f'"{option}"' in source, f"{where}: {words[0]} has no {option}"


@each_document
def test_every_command_exists(document: Path) -> None:
    for command in commands(document):
        for words in stages(command.text):
            arguments = translate_arguments(words)
            if arguments is None:
                check_other(words, f"{named(document)}:{command.line}")
                continue
            parse(arguments)
            if not any(line.startswith("Error:") for line in command.output):
                check_settings(arguments)
    for words in spans(document):
        arguments = translate_arguments(words)
        if arguments is None:
            check_other(words, named(document))
            continue
        parse(arguments, partial=True)
        check_settings(arguments)


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.toml")), ids=named)
def test_commands_in_configurations_exist(config: Path) -> None:
    found = re.findall(r"^#   (.*)$", config.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for text in found:
        arguments = translate_arguments(stages(text)[0])
        assert arguments is not None
        parse(arguments)
        check_settings(arguments)


def test_a_wrong_command_is_noticed() -> None:
    for arguments in (["trian"], ["text", "run", "--bean", "3"], ["text"], ["train", "a.toml", "--reverse", "--often"]):
        with pytest.raises(Exception):  # noqa: B017  (typer has classes of its own)
            parse(arguments)
    with pytest.raises(ConfigError):
        check_settings(["train", "configs/demo.toml", "model.attention.scroe=dot"])


def test_reasons_not_to_run_are_used() -> None:
    texts = [command.text for document in DOCUMENTS for command in commands(document)]
    assert [start for start in NOT_RUN if not any(text.startswith(start) for text in texts)] == []


# -- the commands are run ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory, translate: Callable[..., Any]) -> Path:
    """A folder like that of this repository, with the first lines of the demo's corpus and a run of four updates."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "data" / "demo").mkdir(parents=True)
    for split_name, count in (("train", 150), ("valid", 10), ("test", 10)):
        for ending in ("en", "fr", "align"):
            lines = (ROOT / "data" / "demo" / f"{split_name}.{ending}").read_bytes().split(b"\n")[:count]
            (folder / "data" / "demo" / f"{split_name}.{ending}").write_bytes(b"".join(line + b"\n" for line in lines))
    for name, ending in (("a.en", "en"), ("a.de", "fr")):
        shutil.copy(folder / "data" / "demo" / f"train.{ending}", folder / name)
    for name in ("configs", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    done = translate("train", "configs/demo.toml", *SMALL, "--run", "runs/demo", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def shortened(arguments: list[str]) -> list[str]:
    """The command with settings that make it short; what the document sets itself comes after them."""
    if arguments[0] == "train":
        at = next(place for place, word in enumerate(arguments) if word.endswith(".toml")) + 1
        return [*arguments[:at], *SMALL, *arguments[at:]]
    return [*arguments, *SHORT.get(arguments[0], ())]


class Shell:
    """Runs a document's commands in a folder, `translate` inside this process, which saves loading torch."""

    def __init__(self, folder: Path, command_line: Callable[..., Any], environment: dict[str, str], patch: Any) -> None:
        self.folder, self.command_line, self.environment, self.patch = folder, command_line, environment, patch

    def run(self, command: Command) -> str:
        """What the command prints; one that the document shows to fail must fail with the same message."""
        words = stages(command.text)
        arguments = translate_arguments(words[-1])
        if arguments is None or words[-1][0] != "translate":
            program = {"translate": f"{sys.executable} -m translate"}
            text = re.sub(r"\btranslate(?= [a-z])", program["translate"], command.text)
            done = subprocess.run(
                ["bash", "-c", text], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, f"{command.text}: {done.stderr}"
            return done.stdout
        given = b""
        if words[1:]:
            before, _, _ = command.text.rpartition(" | ")
            given = subprocess.run(["bash", "-c", before], cwd=self.folder, capture_output=True, check=True).stdout
        (self.folder / ".stdin").write_bytes(given)
        with (self.folder / ".stdin").open(encoding="utf-8") as stdin, restored_zoo():
            self.patch.setattr(sys, "stdin", stdin)
            result = self.command_line(*shortened(arguments))
        errors = [line for line in command.output if line.startswith("Error:")]
        assert result.code == (2 if errors else 0), f"{command.text}: {result.err}"
        for line in errors:
            assert line in result.err.split("\n"), f"{command.text}: {result.err}"
        if redirect := re.search(r" > (\S+)$", command.text):
            (self.folder / redirect.group(1)).write_text(result.out, encoding="utf-8")
        return str(result.out)


@pytest.fixture
def shell(
    demo_run: Path,
    tmp_path: Path,
    command_line: Callable[..., Any],
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    folder = tmp_path / "repository"
    shutil.copytree(demo_run, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Shell(folder, command_line, {**environment, "PYTHONPATH": str(ROOT)}, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("document", RUNNABLE, ids=named)
def test_commands_run_in_order(document: Path, shell: Shell) -> None:
    """As they stand, one after another, as a reader would type them."""
    for command in commands(document):
        if reason(command) is None:
            shell.run(command)


@pytest.mark.slow
def test_the_python_of_using_runs(shell: Shell) -> None:
    (block,) = [block for block in split(ROOT / "docs" / "using.md")[0] if block.language == "python"]
    text = "\n".join(block.lines)
    assert "translate.load" in text
    source = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")
    code = source.split("```python\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=shell.folder, env=shell.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
