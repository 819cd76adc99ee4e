"""`translate evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from translate.cli.options import BeamOption, DeviceOption, PluginOption, RunArgument, SetOption

if TYPE_CHECKING:
    from translate.evaluation.metrics import Evaluation, Score

TITLES = {
    "length": "by source length",
    "rare": "by words seen fewer than 5 times in training",
    "copied": "by words that source and reference share",
}
NAMES = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
TokenizeOption = Annotated[
    str | None,
    typer.Option(
        help="sacreBLEU's tokenizer for BLEU, as in 13a, intl, char or zh; by the target language if left out."
    ),
]


# Longer than 60 lines, because every option has lines of its own.
def command(
    run: RunArgument,
    split: Annotated[
        str | None, typer.Option(help="Part of the run's own data: test or valid; test if left out.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Translate this file instead of the run's own data; needs --reference.")
    ] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Reference translations of --source. Repeatable.")
    ] = None,
    min_words: Annotated[int, typer.Option(min=0, help="Leave out sources with fewer words.")] = 0,
    tokenize: TokenizeOption = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Add scores that ignore case.")] = False,
    sentences: Annotated[
        Path | None, typer.Option(help="Write the scores of every sentence to this file, as TSV.")
    ] = None,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Scores by source length, rare words and copied words, with a picture.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Translate again, even if the run has cached translations.")
    ] = False,
    beam: BeamOption = None,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """BLEU, chrF, chrF++ and TER with sacreBLEU's signatures and 95 % confidence intervals."""
    import json
    import sys
    import warnings

    from translate.cli.options import load_translator
    from translate.errors import UserError
    from translate.evaluation.evaluate import evaluate_lines, keep_translations, read_test_set, run_split_files
    from translate.evaluation.metrics import MetricSettings
    from translate.run.directory import Run

    if (source is None) != (not reference):
        raise UserError("--source and --reference go together: give both, or neither for the run's own data.")
    if [source, sentences, *(reference or [])].count(Path("-")) > 1 or (as_json and sentences == Path("-")):
        raise UserError("Only one of --source, --reference, --sentences and --json can use stdin or stdout, -.")
    if source is not None and split is not None:
        raise UserError("--split names a part of the run's own data, --source a file: give only one of them.")
    split = split or "test"
    languages = Run.open(run).config().data
    own = run_split_files(run, split) if source is None else None
    files = (own[0], [own[1]]) if own is not None else (source, reference)
    assert files[0] is not None
    assert files[1]
    sources, references, lines = read_test_set(files[0], files[1], min_words)
    metrics = MetricSettings(languages.target_lang, tokenize, lowercase)
    translator = load_translator(run, beam, device, settings)
    evaluation, hypotheses = evaluate_lines(translator, sources, references, metrics, run, fresh)
    result = evaluation.as_json()
    parts: dict[str, Any] = {}
    if breakdown:
        parts = _parts(run, translator.source, sources, hypotheses, references, metrics, languages.source_lang)
        result["breakdown"] = parts
    if as_json:
        print(json.dumps(result))
    else:
        _print(evaluation, translator.search.beam)
        _print_parts(parts)
    if sentences is not None:
        _write_sentences(sentences, lines, hypotheses, references, metrics)
    official = own is not None and beam is None and not settings and not min_words and tokenize is None
    if breakdown and not official:
        print("The picture is drawn only for the run's own data with the run's own settings.", file=sys.stderr)
    if official:
        try:
            keep_translations(run, split, hypotheses, evaluation)
            if parts:
                _draw_parts(run / "translations" / f"{split}.breakdown.png", parts)
        except UserError as error:  # a read-only run has been scored all the same
            warnings.warn(f"the translations are not kept: {error}", stacklevel=1)


def _print(evaluation: Evaluation, beam: int) -> None:
    for name, score in evaluation.scores.items():
        _print_score(NAMES[name], score)
    for name, score in (evaluation.lowercase or {}).items():
        _print_score(f"{NAMES[name]} lc", score)
    speed = evaluation.sentences / max(evaluation.seconds, 1e-9)
    print(f"{evaluation.sentences} sentences in {evaluation.seconds:.1f} s ({speed:.0f}/s), beam {beam}")


def _print_score(name: str, score: Score) -> None:
    print(f"{name:<9} {score.score:6.2f}  [{score.low:.2f}, {score.high:.2f}]  {score.signature}")


def _parts(
    run: Path,
    tokenizer: Any,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    settings: Any,
    language: str,
) -> dict[str, Any]:
    import sys

    from translate.evaluation.breakdown import breakdown, breakdown_json, training_words

    counts = training_words(run, tokenizer)
    if counts is None:
        print(f"{run} has no cache of its training data: rare words cannot be identified.", file=sys.stderr)
    return breakdown_json(breakdown(sources, hypotheses, references, settings, language, counts, tokenizer.normalize))


def _print_parts(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for kind, classes in parts.items():
        found = "  found again" if kind == "copied" else ""
        print(f"\n{TITLES[kind]}\n{'':>8}  sentences    BLEU    chrF{found}")
        for part in classes:
            again = f"  {part['found']:11.1%}" if part["found"] is not None else ""
            print(f"{part['name']:>8}  {part['sentences']:9}  {part['bleu']:6.2f}  {part['chrf']:6.2f}{again}")


def _draw_parts(path: Path, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    import sys

    from translate.figures.curves import save_breakdown

    save_breakdown(path, parts, TITLES)
    print(f"drawn in {path}", file=sys.stderr)


def _write_sentences(
    path: Path, numbers: Sequence[int], hypotheses: Sequence[str], references: Sequence[Sequence[str]], settings: Any
) -> None:
    """One line a sentence: its number in the test set, its scores, the translation."""
    import sys

    from translate.errors import UserError
    from translate.evaluation.metrics import sentence_scores

    rows = sentence_scores(hypotheses, references, settings)
    lines = ["\t".join(["line", *rows[0], "translation"])]
    for number, row, text in zip(numbers, rows, hypotheses, strict=True):
        lines.append("\t".join([str(number), *(f"{value:.2f}" for value in row.values()), text]))
    content = "".join(line + "\n" for line in lines)
    if str(path) == "-":
        sys.stdout.write(content)
        return
    try:
        path.write_bytes(content.encode())
    except OSError as error:
        raise UserError(f"--sentences {path}: cannot be written: {error.strerror}.") from None
