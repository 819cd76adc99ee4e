"""`translate evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from translate.cli.options import BeamOption, DeviceOption, RunArgument, SetOption

if TYPE_CHECKING:
    from translate.evaluation.metrics import Evaluation


def command(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="Which of the run's own data: test or valid.")] = "test",
    source: Annotated[Path | None, typer.Option(help="A file to translate instead.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Its translations by people.")] = None,
    min_words: Annotated[int, typer.Option(min=0, help="Only sources of at least so many words.")] = 0,
    beam: BeamOption = None,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """BLEU, chrF and TER with sacreBLEU's signatures and 95 % confidence intervals."""
    import warnings

    from translate.checkpoint import Run
    from translate.cli.options import load_translator
    from translate.errors import UserError
    from translate.evaluation.evaluate import evaluate_lines, keep_translations, read_pairs, split_files

    if (source is None) != (reference is None):
        raise UserError("--source and --reference go together: give both, or neither for the run's own data.")
    if source == reference == Path("-"):
        raise UserError("Only one of --source and --reference can be -, stdin.")
    Run.open(run)
    files = (source, reference) if source is not None and reference is not None else split_files(run, split)
    sources, references = read_pairs(*files, min_words=min_words)
    translator = load_translator(run, beam, device, settings)
    evaluation, hypotheses = evaluate_lines(translator, sources, references)
    _print(evaluation, translator.search.beam, as_json)
    if source is None and beam is None and not settings and not min_words:
        try:
            keep_translations(run, split, hypotheses, evaluation)
        except UserError as error:  # a run that may only be read has been scored all the same
            warnings.warn(f"the translations are not kept: {error}", stacklevel=1)


def _print(evaluation: Evaluation, beam: int, as_json: bool) -> None:
    import json

    if as_json:
        print(json.dumps(evaluation.as_json()))
        return
    for name, score in (("BLEU", evaluation.bleu), ("chrF", evaluation.chrf), ("TER", evaluation.ter)):
        print(f"{name:<5}{score.score:6.2f}  [{score.low:.2f}, {score.high:.2f}]  {score.signature}")
    speed = evaluation.sentences / max(evaluation.seconds, 1e-9)
    print(f"{evaluation.sentences} sentences in {evaluation.seconds:.1f} s ({speed:.0f}/s), beam {beam}")
