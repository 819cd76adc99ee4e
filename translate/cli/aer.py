"""`translate aer`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from translate.alignment.aer import Aer


class Base(StrEnum):
    """The number of the first word in a file."""

    auto = "auto"
    zero = "0"
    one = "1"


GoldBaseOption = Annotated[Base, typer.Option(help="Number of the first word in the gold links; detected if left out.")]


def command(
    hypothesis: Annotated[Path, typer.Argument(metavar="HYPOTHESIS", help="Links of any aligner; - is stdin.")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="Gold links: i-j sure, ipj possible; or NAACL.")],
    hypothesis_base: Annotated[
        Base, typer.Option(help="Number of the first word in the hypothesis; detected if left out.")
    ] = Base.auto,
    gold_base: GoldBaseOption = Base.auto,
    sentences: Annotated[bool, typer.Option("--sentences", help="Score every sentence too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Alignment error rate, precision, recall and F1 of a file of links against gold."""
    import sys

    from translate.alignment.formats import read_alignments
    from translate.errors import UserError

    if hypothesis == gold == Path("-"):
        raise UserError("Only one of HYPOTHESIS and GOLD can be -, stdin.")
    reference = read_alignments(gold, gold_base.value)
    count = len(reference.sentences)
    if reference.open_ended:
        given = read_alignments(hypothesis, hypothesis_base.value).filled(count)
        reference = reference.filled(len(given.sentences))
    else:
        given = read_alignments(hypothesis, hypothesis_base.value, sentences=count)
    for file, path in ((given, hypothesis), (reference, gold)):
        print(file.said(path), file=sys.stderr)
    bases = {"hypothesis_base": given.base, "gold_base": reference.base}
    print_scores([links.possible for links in given.sentences], reference.sentences, as_json, sentences, bases)


def print_scores(
    hypotheses: Sequence[Any], gold: Sequence[Any], as_json: bool, each: bool, extra: dict[str, int], first: int = 1
) -> None:
    """Score links against gold and print; `extra` goes into the JSON object, `first` numbers the first line."""
    import json

    from translate.alignment.aer import score, score_each

    total = score(hypotheses, gold)
    rows = score_each(hypotheses, gold) if each else []
    if as_json:
        lines = [{"line": line, **_without_count(row)} for line, row in enumerate(rows, start=first)]
        print(json.dumps({**total.as_json(), **extra, **({"per_sentence": lines} if each else {})}))
        return
    if each:
        print("line     AER  precision  recall      F1")
    for line, row in enumerate(rows, start=first):
        print(f"{line:>4}  {row.aer:6.3f}  {row.precision:9.3f}  {row.recall:6.3f}  {row.f1:6.3f}")
    numbers = f"precision {total.precision:.3f}, recall {total.recall:.3f}, F1 {total.f1:.3f}"
    print(f"AER {total.aer:.3f}, {numbers}")
    print(f"over {total.sentences} sentences")


def _without_count(row: Aer) -> dict[str, float | int]:
    return {name: value for name, value in row.as_json().items() if name != "sentences"}
