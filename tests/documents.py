"""What the documents say: their code blocks, commands and links, read by one simple rule.

A fence names its language. In `sh` every line is a command (a backslash at its end goes on), in `console` every line
after `$ ` is one and what follows is its output; `text` is output, the others are code. A code span that begins with
`translate ` or `python scripts/` is a command too, in which "…" stands for what is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"sh", "console", "text", "bash", "python", "json", "toml"}

_FENCE = re.compile(r"^ *```(.*)$")
_SPAN = re.compile(r"`((?:translate |python scripts/)[^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


class Block(NamedTuple):
    """A code block."""

    line: int
    language: str
    lines: list[str]


class Command(NamedTuple):
    """A command of a document, and the output that the document shows."""

    line: int
    text: str
    output: list[str]


def split(document: Path) -> tuple[list[Block], str]:
    """The code blocks of a document, and its text without them."""
    blocks: list[Block] = []
    prose, inside = [], False
    for number, line in enumerate(document.read_text(encoding="utf-8").split("\n"), start=1):
        fence = _FENCE.match(line)
        if fence:
            inside = not inside
            if inside:
                blocks.append(Block(number, fence.group(1), []))
        elif inside:
            blocks[-1].lines.append(line.strip())
        else:
            prose.append(line)
    assert not inside, f"{document}: a code block has no end"
    return blocks, "\n".join(prose)


def commands(document: Path) -> Iterator[Command]:
    """All commands in the code blocks of a document."""
    for block in split(document)[0]:
        if block.language == "sh":
            text = "\n".join(block.lines).replace("\\\n", " ")
            yield from (Command(block.line, " ".join(line.split()), []) for line in text.split("\n") if line)
        elif block.language == "console":
            starts = [at for at, line in enumerate(block.lines) if line.startswith("$ ")]
            for at, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
                yield Command(block.line, block.lines[at][2:], block.lines[at + 1 : end])


def spans(document: Path) -> list[list[str]]:
    """The words of each command in the code spans of a document."""
    found = [" ".join(span.split()) for span in _SPAN.findall(split(document)[1])]
    return [[word for word in shlex.split(span) if word != "…"] for span in found]


def stages(command: str) -> list[list[str]]:
    """The words of each command of a pipeline, without redirections."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word == "|":
            found.append([])
        elif word == ">":
            next(words)
        else:
            found[-1].append(word)
    return found


def translate_arguments(words: list[str]) -> list[str] | None:
    """What a command gives to `translate`, also under torchrun; None where it starts another program."""
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words[:1] == ["torchrun"]:
        words = words[words.index("--") + 1 :]
    return words[1:] if words[:1] == ["translate"] else None


def links(document: Path) -> Iterator[str]:
    """The targets of all links and pictures of a document."""
    text = re.sub(r"`[^`\n]*`", "", split(document)[1])
    for link, picture in _LINK.findall(text):
        yield link or picture


def anchors(document: Path) -> set[str]:
    """What a link can name in a document: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", split(document)[1], flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
