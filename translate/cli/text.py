"""`translate text`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from translate.cli.options import BeamOption, DeviceOption, RunArgument, SetOption

if TYPE_CHECKING:
    from translate.decoding.translator import Translation, Translator
    from translate.training.distributed import World


def command(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file to translate; - is stdin.")] = Path("-"),
    beam: BeamOption = None,
    nbest: Annotated[int, typer.Option(min=1, help="Translations per line, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching; see --temperature.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Of the draw; below 1 it is tamer.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many of the likeliest pieces.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest with this probability together.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draw.")] = None,
    ensemble: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Average the probabilities with this run's. Repeatable.")
    ] = None,
    rerank: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run of the other direction that ranks the beam again.")
    ] = None,
    rerank_weight: Annotated[float, typer.Option(min=0.0, help="How much its score counts.")] = 1.0,
    prefix: Annotated[Path | None, typer.Option(help="A file: how the translation of each line starts.")] = None,
    require: Annotated[
        Path | None, typer.Option(help="A file: what the translation of each line must hold, separated by tabs.")
    ] = None,
    ban: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Never write this. Repeatable.")] = None,
    keep_entities: Annotated[
        bool, typer.Option("--keep-entities", help="E-mail addresses, URLs and numbers come through as they are.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="A file to write instead of stdout.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Go on where --output ends.")] = False,
    settings: SetOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Translate line by line: one line in, one line out, in order, as they come."""
    from translate.cli.options import find_device, load_translator
    from translate.config import change_search
    from translate.decoding.stream import count_answered
    from translate.decoding.translator import Translator
    from translate.errors import UserError
    from translate.training.distributed import joined

    if append and output is None:
        raise UserError("--append goes on with a file: name it with --output.")
    with joined() as world:
        if world.size > 1 and str(file) == "-":
            raise UserError("Several processes share a file: give one instead of stdin.")
        translator = load_translator(run, beam, device, settings, ensemble or ())
        translator.search = change_search(
            translator.search,
            beam=max(nbest, translator.search.beam) if not sample else None,
            sample=sample or None,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            banned=(*translator.search.banned, *ban) if ban else None,
            keep_entities=keep_entities or None,
        )
        reverse = Translator.load(rerank, find_device(device)) if rerank is not None else None
        skip = world.from_leader(count_answered(output, nbest) if append and output is not None and world.leads else 0)
        lines = Lines(translator, nbest, scores, reverse, rerank_weight)
        lines.translate(file, output, prefix, require, skip, world)


class Lines:
    """Translates lines and writes the answers."""

    def __init__(
        self, translator: Translator, num_best: int, scores: bool, reverse: Translator | None, weight: float
    ) -> None:
        self.translator = translator
        self.num_best = num_best
        self.scores = scores
        self.reverse = reverse
        self.weight = weight

    def translate(
        self, file: Path, output: Path | None, prefix: Path | None, require: Path | None, skip: int, world: World
    ) -> None:
        """All lines of a file after the first `skip`; the first process writes, in order."""
        import sys

        from translate.cli.progress import SentenceProgress
        from translate.decoding.stream import Beside, line_chunks

        prefixes = Beside(prefix, skip) if prefix is not None else None
        phrases = Beside(require, skip) if require is not None else None
        done, mine, turn = skip, "", 0
        with _opened(output, skip > 0) if world.leads else _nowhere() as out:
            progress = SentenceProgress(sys.stderr, shown=world.leads and not out.isatty())
            chunks = line_chunks(file, skip)
            while True:
                chunk = next(chunks, [])
                before = prefixes.next(len(chunk)) if prefixes is not None else None
                wanted = [line.split("\t") for line in phrases.next(len(chunk))] if phrases is not None else None
                if turn == world.rank and chunk:
                    mine = self._answer(chunk, done + 1, before, wanted)
                done += len(chunk)
                turn = (turn + 1) % world.size
                if turn and chunk:
                    continue
                for text in world.to_leader(mine) or ():
                    out.write(text)
                out.flush()
                progress.show(done - skip)
                mine, turn = "", 0
                if not chunk:
                    break
            progress.end()

    def _answer(
        self, lines: list[str], first_line: int, prefixes: list[str] | None, required: list[list[str]] | None
    ) -> str:
        """The answers to some lines, as text; each line has as many."""
        from translate.decoding.rerank import rerank

        search = self.translator.search
        width = max(self.num_best, search.beam) if self.reverse is not None else self.num_best
        found = self.translator.translate(
            lines, num_best=width, first_line=first_line, prefixes=prefixes, required=required, attention=False
        )
        if self.reverse is not None:
            found = rerank(self.reverse, lines, found, self.weight, self.num_best, first_line)
        return "".join(f"{answer}\n" for several in found for answer in self._formatted(several))

    def _formatted(self, several: list[Translation]) -> Iterator[str]:
        for one in several[: self.num_best]:
            yield f"{one.score:.4f}\t{one.text}" if self.scores else one.text
        for _ in range(self.num_best - len(several)):  # so that it stays clear which answers belong to which line
            yield "-inf\t" if self.scores else ""


def _opened(output: Path | None, going_on: bool) -> IO[str]:
    import contextlib
    import sys

    from translate.errors import UserError

    if output is None or str(output) == "-":
        return contextlib.nullcontext(sys.stdout)  # type: ignore[return-value]
    try:
        return output.open("a" if going_on else "w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}.") from None


def _nowhere() -> IO[str]:
    import os

    return open(os.devnull, "w", encoding="utf-8")
