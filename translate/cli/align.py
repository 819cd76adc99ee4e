"""`translate align`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from translate.cli.aer import Base, GoldBaseOption, print_scores
from translate.cli.align_files import BINARY, PICTURES, Format, write
from translate.cli.options import BeamOption, DeviceOption, PluginOption, RunArgument
from translate.defaults import LINK_THRESHOLD

if TYPE_CHECKING:
    from translate.alignment.formats import Gold
    from translate.decoding.aligner import AlignedSentence, AlignSettings
    from translate.decoding.translator import Translator

CHUNK = 1000  # lines aligned at a time


class Symmetrize(StrEnum):
    """How the links of two directions become one set."""

    intersect = "intersect"
    union = "union"
    grow_diag = "grow-diag"
    grow_diag_final_and = "grow-diag-final-and"


class Extract(StrEnum):
    """How links are extracted from the weights."""

    argmax = "argmax"
    threshold = "threshold"
    both = "both"


class Unit(StrEnum):
    """What is linked."""

    auto = "auto"
    words = "words"
    characters = "characters"


class Level(StrEnum):
    """Which links are written."""

    words = "words"
    pieces = "pieces"
    both = "both"


ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help=f"Minimum weight of a link, with --extract threshold or both. Default: {LINK_THRESHOLD}.",
    ),
]


# Longer than 60 lines, because every option has lines of its own.
def command(
    run: RunArgument,
    source: Annotated[Path, typer.Option(help="Sentences to align; - is stdin.")],
    target: Annotated[Path | None, typer.Option(help="Their translations; the run's own if left out.")] = None,
    reverse: Annotated[
        Path | None, typer.Option(help="A run of the reverse direction; the links of both runs are joined.")
    ] = None,
    head: Annotated[
        bool, typer.Option("--head", help="Align by the alignment head that `translate head` has trained.")
    ] = False,
    symmetrize: Annotated[
        Symmetrize | None,
        typer.Option(help="How links of both runs are joined; Koehn's grow-diag if left out."),
    ] = None,
    extract: Annotated[
        Extract,
        typer.Option(help="A target word's links: its greatest weight, all weights from --threshold on, or both."),
    ] = Extract.argmax,
    threshold: ThresholdOption = None,
    shift: Annotated[
        str,
        typer.Option(
            help="For step t use the weights of step t + k; k is a number, or auto, where both runs agree best."
        ),
    ] = "0",
    diagonal: Annotated[
        float, typer.Option(min=0.0, help="Prefer links near the diagonal; 0 is off, 4 is strong.")
    ] = 0.0,
    units: Annotated[
        Unit,
        typer.Option(
            help="What is aligned: words, which spaces separate, or characters; auto decides by the languages."
        ),
    ] = Unit.auto,
    level: Annotated[Level, typer.Option(help="Links of words, of pieces, or both (json, npz).")] = Level.words,
    format: Annotated[Format, typer.Option(help="Links, full matrices, heat maps, or a page.")] = Format.pharaoh,
    output: Annotated[
        Path | None,
        typer.Option(
            help="A file (- is stdout), or a folder for pictures. If left out: stdout for text; "
            "in the run for pictures, npz and html."
        ),
    ] = None,
    lines: Annotated[str | None, typer.Option(help="Only these lines, as in 3 or 1-20.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold links: print precision, recall, F1 and AER.")] = None,
    gold_base: GoldBaseOption = Base.auto,
    sentences: Annotated[bool, typer.Option("--sentences", help="With --gold, score every sentence too.")] = False,
    beam: BeamOption = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Scores against --gold as one JSON object.")] = False,
) -> None:
    """Word alignments and heat maps, of the run's own translations or of given ones."""
    from translate.alignment.aer import score_each
    from translate.errors import UserError

    _check_gold(gold, target, format, output, as_json, sentences)
    if [source, target, gold].count(Path("-")) > 1:
        raise UserError("Only one of --source, --target and --gold can be -, stdin.")
    if reverse is None and (symmetrize is not None or shift == "auto"):
        raise UserError("--symmetrize and --shift auto need --reverse, a run that translates back.")
    if gold is None and gold_base != Base.auto:
        raise UserError("--gold-base tells how --gold numbers words: give the gold links.")
    if gold is not None and units == Unit.characters:
        raise UserError("--units characters does not go with --gold: gold links number words between spaces.")
    if level != Level.words:
        _check_level(level, format, reverse)
    least, numbers = least_weight(extract, threshold), _range(lines)
    sources, targets = _read_sides(source, target)
    if lines is not None and len(sources) <= numbers.start:
        raise UserError(f"--lines {lines}: {source} has {len(sources)} lines.")
    reference = None if gold is None else _read_gold(gold, gold_base, len(sources))
    sources, targets = sources[numbers], targets[numbers] if targets is not None else None
    aligner = _Aligner.load(run, reverse, beam, device, (symmetrize or Symmetrize.grow_diag).value, head)
    aligner.settings = _settings(run, extract, least, diagonal, units, level, gold is not None)
    aligner.shift(shift)
    first = (numbers.start or 0) + 1
    aligned = aligner.sentences(sources, targets, first)
    if reference is None:
        write(aligned, format, output, run, level == Level.pieces, by_head=head)
        return
    found = list(aligned)
    if output is not None or format in (*PICTURES, *BINARY):
        errors = [row.aer for row in score_each([s.links for s in found], reference[numbers])]
        write(found, format, output, run, level == Level.pieces, errors, by_head=head)
    extra = {"shift": aligner.settings.extraction.shift}
    print_scores([s.links for s in found], reference[numbers], as_json, sentences, extra, first)


@dataclass
class _Aligner:
    """One run, or two of opposite directions."""

    run: Path
    forward: Translator
    backward: Translator | None
    method: str
    settings: AlignSettings

    @classmethod
    def load(cls, run: Path, reverse: Path | None, beam: int | None, device: str, method: str, head: bool) -> _Aligner:
        from translate.cli.options import load_translator
        from translate.decoding.aligner import AlignSettings, check_attention
        from translate.run.directory import Run
        from translate.run.heads import load_head

        forward = load_translator(run, beam, device)
        check_attention(forward)
        backward = None
        if reverse is not None:
            check_directions(run, reverse)
            backward = load_translator(reverse, beam, device)
            check_attention(backward)
        if head:
            forward.head = load_head(Run.open(run), forward.model)
            if reverse is not None and backward is not None:
                backward.head = load_head(Run.open(reverse), backward.model)
        return cls(run, forward, backward, method, AlignSettings())

    def shift(self, shift: str) -> None:
        """Take the shift that was given, or the one by which both runs agree best on the run's validation data."""
        import sys

        from translate.decoding.aligner import choose_shift
        from translate.evaluation.evaluate import read_pairs, run_split_files

        number = parse_shift(shift)
        if number is None:
            assert self.backward is not None
            pairs = read_pairs(*run_split_files(self.run, "valid"))
            number, found = choose_shift(self.forward, self.backward, *pairs, self.settings)
            shown = ", ".join(f"{k}: {found[k]:.3f}" for k in sorted(found))
            print(f"--shift auto: {number}, by agreement on the run's validation data ({shown})", file=sys.stderr)
        self.settings = replace(self.settings, extraction=replace(self.settings.extraction, shift=number))

    def sentences(self, sources: list[str], targets: list[str] | None, first: int) -> Iterator[AlignedSentence]:
        """Align in chunks of bounded size; translations in the run's cache are reused."""
        from translate.decoding.aligner import align_both, align_translations, by_head, translations_of
        from translate.evaluation.translation_cache import MOST_LINES, translate_cached

        kept = None
        if targets is None and len(sources) <= MOST_LINES:
            kept = translate_cached(self.run, self.forward, sources, first_line=first).translations
        for begin in range(0, len(sources), CHUNK):
            some, given = sources[begin : begin + CHUNK], None if targets is None else targets[begin : begin + CHUNK]
            line = first + begin
            if kept is not None:
                found = by_head(self.forward, kept[begin : begin + CHUNK])
            else:
                found = translations_of(self.forward, some, given, line)
            if self.backward is None:
                yield from align_translations(self.forward, some, found, given, line, self.settings)
            else:
                yield from align_both(self.forward, self.backward, some, found, given, self.method, line, self.settings)


def _check_gold(
    gold: Path | None, target: Path | None, format: Format, output: Path | None, as_json: bool, each: bool
) -> None:
    from translate.errors import UserError

    if gold is not None and target is None:
        raise UserError("--gold needs --target: its links belong to given translations, not to the model's own.")
    if gold is None and each:
        raise UserError("--sentences scores every sentence against --gold: give the gold links.")
    if gold is not None and format == Format.json and output is None:
        raise UserError("--format json with --gold needs --output: stdout is for the scores.")
    if as_json and (gold is None or output == Path("-")):
        raise UserError("--json prints the scores against --gold, alone on stdout; --format json writes the matrices.")


def _check_level(level: Level, format: Format, reverse: Path | None) -> None:
    from translate.errors import UserError

    allowed = (Format.pharaoh,) if level == Level.pieces else (Format.json, Format.npz)
    if format not in allowed:
        raise UserError(f"--level {level.value} goes with --format {' or '.join(kind.value for kind in allowed)}.")
    if reverse is not None:
        raise UserError(f"--level {level.value} does not go with --reverse: the runs may cut words differently.")


def check_directions(run: Path, reverse: Path, option: str = "--reverse") -> None:
    """Refuse a second run of the same direction; if the language codes do not match, only warn."""
    import warnings

    from translate.errors import UserError
    from translate.run.directory import Run

    ours, theirs = (Run.open(path).config().data.direction for path in (run, reverse))
    if ours == theirs and ours != theirs[::-1]:
        raise UserError(
            f"{option} {reverse} translates {' → '.join(ours)}, as {run} does: give a run that translates back, "
            f"{' → '.join(reversed(ours))}."
        )
    if ours != theirs[::-1]:
        warnings.warn(
            f"{run} translates {' → '.join(ours)}, {reverse} {' → '.join(theirs)}: are these the same languages?",
            stacklevel=2,
        )


def _settings(
    run: Path, extract: Extract, threshold: float, diagonal: float, units: Unit, level: Level, gold: bool
) -> AlignSettings:
    from translate.alignment.extract import Extraction
    from translate.decoding.aligner import AlignSettings

    spans = (units == Unit.characters, units == Unit.characters)
    if units == Unit.auto and not gold:  # gold links number words between spaces
        spans = spans_of(run, "; --units words links words between spaces")
    extraction = Extraction(extract.value, threshold, 0, diagonal)
    return AlignSettings(extraction, *spans, pieces=level != Level.words)


def least_weight(extract: Extract, threshold: float | None) -> float:
    """The given threshold or its default; refused where it has no effect."""
    from translate.errors import UserError

    if threshold is not None and extract == Extract.argmax:
        raise UserError("--threshold goes with --extract threshold or both: argmax takes the greatest weight only.")
    return LINK_THRESHOLD if threshold is None else threshold


def spans_of(run: Path, otherwise: str = "") -> tuple[bool, bool]:
    """Whether source and target are written without spaces, so that characters are linked; prints a note."""
    import sys

    from translate.alignment.units import without_spaces
    from translate.run.directory import Run

    data = Run.open(run).config().data
    for language in (data.source_lang, data.target_lang):
        if without_spaces(language):
            print(f"{language} is linked by characters{otherwise}", file=sys.stderr)
    return without_spaces(data.source_lang), without_spaces(data.target_lang)


def parse_shift(text: str) -> int | None:
    """The number given, or None for auto."""
    from translate.errors import UserError

    if text == "auto":
        return None
    try:
        number = int(text)
    except ValueError:
        number = 100
    if abs(number) > 10:
        raise UserError(f"--shift {text}: give a whole number from -10 to 10, or auto.")
    return number


def _read_sides(source: Path, target: Path | None) -> tuple[list[str], list[str] | None]:
    from translate.errors import DataError
    from translate.text.corpus import read_lines

    sources = list(read_lines(source))
    targets = None if target is None else list(read_lines(target))
    if targets is not None and len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources)} lines, {target} {len(targets)}: "
            "line N of each must be a translation of the other."
        )
    return sources, targets


def _range(lines: str | None) -> slice:
    """The Python slice of `3-7` or `3`, counted from 1."""
    from translate.errors import UserError

    if lines is None:
        return slice(0, None)
    first, dash, last = lines.partition("-")
    last = last if dash else first
    if not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise UserError(f"--lines {lines}: give a line or a range counted from 1, as in 3 or 1-20.")
    return slice(int(first) - 1, int(last))


def _read_gold(path: Path, base: Base, count: int) -> list[Gold]:
    """Gold links of as many lines as the source has."""
    import sys

    from translate.alignment.formats import read_alignments
    from translate.errors import DataError

    gold = read_alignments(path, base.value, sentences=count)
    print(gold.said(path), file=sys.stderr)
    if len(gold.sentences) != count:
        raise DataError(
            f"{path} has {len(gold.sentences)} lines of gold, the source {count}: line N of each must belong together."
        )
    return gold.sentences
