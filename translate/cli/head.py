"""`translate head`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from translate.cli.align import (
    Extract,
    Symmetrize,
    ThresholdOption,
    check_directions,
    least_weight,
    parse_shift,
    spans_of,
)
from translate.cli.options import DeviceOption, PluginOption, RunArgument
from translate.defaults import (
    HEAD_AGREEMENT,
    HEAD_BATCH_TOKENS,
    HEAD_LEARNING_RATE,
    HEAD_NULL,
    HEAD_NULL_OF_GIVEN_LINKS,
    HEAD_PAIRS,
    HEAD_ROUNDS,
    HEAD_SEED,
    HEAD_STEPS,
    HEAD_SYMMETRIZE,
    HEAD_WIDTH,
)

DEFAULT_SYMMETRIZE = Symmetrize(HEAD_SYMMETRIZE)


# Longer than 60 lines, because every option has lines of its own.
def command(
    run: RunArgument,
    reverse: Annotated[Path, typer.Option(help="A run of the reverse direction; each run gets a head.")],
    source: Annotated[
        Path | None, typer.Option(help="Sentences to learn from; the run's training pairs if left out.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    links: Annotated[
        Path | None,
        typer.Option(help="Word links of this text by another aligner. Default: the links of both runs' attention."),
    ] = None,
    lexicon: Annotated[
        bool | None,
        typer.Option(
            "--lexicon/--no-lexicon",
            help="Learn a word lexicon from the text first and weigh attention by it. On unless --links is given.",
        ),
    ] = None,
    symmetrize: Annotated[Symmetrize, typer.Option(help="How links of both runs are joined.")] = DEFAULT_SYMMETRIZE,
    extract: Annotated[
        Extract,
        typer.Option(help="A target word's links: its greatest weight, all weights from --threshold on, or both."),
    ] = Extract.argmax,
    threshold: ThresholdOption = None,
    shift: Annotated[
        str,
        typer.Option(
            help="For step t use the attention of step t + k; k is a number, or auto, where both runs agree best."
        ),
    ] = "auto",
    diagonal: Annotated[
        float, typer.Option(min=0.0, help="Prefer links near the diagonal; 0 is off, 4 is strong.")
    ] = 0.0,
    agreement: Annotated[float, typer.Option(min=0.0, help="Weight of the agreement of both heads.")] = HEAD_AGREEMENT,
    null: Annotated[
        float | None,
        typer.Option(min=0.0, help="Weight of words without a link. Default: 0, or 0.5 with --links."),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Width of a head.")] = HEAD_WIDTH,
    steps: Annotated[int, typer.Option(min=1, help="Maximum number of updates per round.")] = HEAD_STEPS,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Time limit of all rounds together, in minutes.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rounds; a later round learns the links of the round before. Default: 2, or 1 with --links.",
        ),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Maximum number of pairs to learn from, drawn by the seed.")
    ] = HEAD_PAIRS,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Positions of a batch, padding included.")
    ] = HEAD_BATCH_TOKENS,
    learning_rate: Annotated[
        float, typer.Option(min=0.0, help="Learning rate at the start of a round; it falls to zero.")
    ] = HEAD_LEARNING_RATE,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for the choice and order of pairs and the heads' initial weights.")
    ] = HEAD_SEED,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
) -> None:
    """Train an alignment head for each of two runs, for `translate align --head`."""
    from translate.alignment.extract import Extraction
    from translate.cli.options import load_translator
    from translate.decoding.aligner import AlignSettings
    from translate.errors import UserError
    from translate.run.directory import Run
    from translate.training.heads.settings import HeadSettings
    from translate.training.heads.train import HeadFiles, train_heads
    from translate.training.logging import Reporter

    if (source is None) != (target is None):
        raise UserError("--source and --target go together: line N of each must be a translation of the other.")
    if lexicon and links is not None:
        raise UserError(
            "--lexicon improves the links of both runs: it has no effect on --links. Leave one of them out."
        )
    number, least = parse_shift(shift), least_weight(extract, threshold)
    check_directions(run, reverse)
    reporter = Reporter()
    align = AlignSettings(Extraction(extract.value, least, 0, diagonal), *spans_of(run))
    default_null = HEAD_NULL if links is None else HEAD_NULL_OF_GIVEN_LINKS
    settings = HeadSettings(
        width=width,
        steps=steps,
        minutes=minutes,
        rounds=rounds or (HEAD_ROUNDS if links is None else 1),
        agreement=agreement,
        null=null if null is not None else default_null,
        learning_rate=learning_rate,
        batch_tokens=batch_tokens,
        pairs=pairs,
        seed=seed,
        method=symmetrize.value,
        lexicon=links is None if lexicon is None else lexicon,
        align=align,
    )
    forward, backward = (load_translator(path, None, device) for path in (run, reverse))
    runs, files = (Run.open(run), Run.open(reverse)), HeadFiles(source, target, links)
    found = train_heads(forward, backward, runs, files, settings, number, reporter)
    reporter.say(
        f"The heads are in {run / 'head'} and {reverse / 'head'}: held-out loss {found.loss:.3f}, agreement "
        f"{found.agreement:.3f}. Try: translate align {run} --head --reverse {reverse} --source F --target F"
    )
