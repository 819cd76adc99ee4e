"""`translate text`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Self

import typer

from translate.cli.options import BeamOption, DeviceOption, PluginOption, RunArgument, SetOption

if TYPE_CHECKING:
    from translate.decoding.translator import Translation, Translator
    from translate.distributed import World


# Longer than 60 lines, because every option has lines of its own.
def command(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file to translate; - is stdin.")] = Path("-"),
    beam: BeamOption = None,
    nbest: Annotated[int, typer.Option(min=1, help="Translations per line, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching; see --temperature.")] = False,
    temperature: Annotated[
        float | None, typer.Option(help="With --sample: below 1, likely pieces are drawn more often.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: draw only from the K likeliest pieces.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="With --sample: draw only from the likeliest pieces that together have this probability."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: another seed gives another draw.")] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Another run: its probabilities are averaged with RUN's. Repeatable."),
    ] = None,
    rerank: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run of the reverse direction that reranks the beam.")
    ] = None,
    rerank_weight: Annotated[
        float | None, typer.Option(min=0.0, help="With --rerank: how much its score counts; 1 if left out.")
    ] = None,
    prefix: Annotated[Path | None, typer.Option(help="A file with the start of each line's translation.")] = None,
    require: Annotated[
        Path | None,
        typer.Option(help="A file with the words that each line's translation must contain, separated by tabs."),
    ] = None,
    ban: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Never write this. Repeatable.")] = None,
    keep_entities: Annotated[
        bool, typer.Option("--keep-entities", help="Copy e-mail addresses, URLs and numbers unchanged.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="A file to write instead of stdout.")] = None,
    append: Annotated[
        bool,
        typer.Option("--append", help="Resume: skip the lines that --output has translations of, and add the rest."),
    ] = False,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
) -> None:
    """Translate line by line: one line in, one line out, in order, as they come."""
    from translate.cli.align import check_directions
    from translate.cli.options import find_device, load_translator
    from translate.config import change_search
    from translate.decoding.stream import count_answered
    from translate.decoding.translator import Translator
    from translate.distributed import joined
    from translate.errors import UserError

    if append and output is None:
        raise UserError("--append continues a file: name it with --output.")
    if rerank is None and rerank_weight is not None:
        raise UserError("--rerank-weight belongs to --rerank RUN: add it.")
    _check_files(output, [path for path in (file, prefix, require) if path is not None])
    with joined() as world:
        if world.size > 1 and Path("-") in (file, prefix, require):
            raise UserError("Several processes cannot share stdin: give a file.")
        place = world.device(find_device(device))
        translator = load_translator(run, beam, place, settings, ensemble or ())
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
        draws = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
        idle = [name for name, value in draws.items() if value is not None and not translator.search.sample]
        if idle:
            raise UserError(f"{idle[0]} belongs to --sample: add it.")
        if rerank is not None:
            check_directions(run, rerank, "--rerank")
        reverse = Translator.load(rerank, place) if rerank is not None else None
        skip = world.from_leader(count_answered(output, nbest) if append and output is not None and world.leads else 0)
        lines = Lines(translator, nbest, scores, reverse, 1.0 if rerank_weight is None else rerank_weight)
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
        from translate.decoding.stream import LineAlignedFile, line_chunks

        prefixes = LineAlignedFile(prefix, skip) if prefix is not None else None
        phrases = LineAlignedFile(require, skip) if require is not None else None
        done, mine, turn = skip, "", 0
        with OutputFile(output if world.leads else Path(os.devnull), skip > 0) as out:
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
                out.write("".join(world.to_leader(mine) or ()))
                progress.show(done - skip)
                mine, turn = "", 0
                if not chunk:
                    break
            progress.end()
        for beside in filter(None, (prefixes, phrases)):
            beside.end()

    def _answer(
        self, lines: list[str], first_line: int, prefixes: list[str] | None, required: list[list[str]] | None
    ) -> str:
        """The translations of some lines as text, the same number for each line."""
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


def _check_files(output: Path | None, inputs: Sequence[Path]) -> None:
    """Refuse to overwrite an input, and to read stdin twice."""
    from translate.errors import UserError

    if inputs.count(Path("-")) > 1:
        raise UserError("Only one of FILE, --prefix and --require can be -, stdin.")
    for path in inputs:
        if output is not None and output.is_file() and path.is_file() and output.samefile(path):
            raise UserError(f"--output {output} is also an input: its lines would be lost. Give another name.")


class OutputFile:
    """The output: stdout, or a file that is opened for the first answer.

    Until then an existing file stays unchanged: a mistake in the input loses nothing.
    """

    def __init__(self, output: Path | None, going_on: bool) -> None:
        import sys

        self.path = None if output is None or str(output) == "-" else output
        self.mode = "a" if going_on else "w"
        self.file: IO[str] | None = sys.stdout if self.path is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.write("")  # without any line the file is empty
        if self.path is not None and self.file is not None:
            with self._named_errors():
                self.file.close()

    def isatty(self) -> bool:
        return self.path is None and self.file is not None and self.file.isatty()

    def write(self, text: str) -> None:
        """Write some answers at once, and flush."""
        with self._named_errors():
            if self.file is None:
                assert self.path is not None
                self.file = self.path.open(self.mode, encoding="utf-8", newline="\n")
            self.file.write(text)
            self.file.flush()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        from translate.errors import UserError

        try:
            yield
        except OSError as error:
            if self.path is None:  # a closed pipe, which main() handles
                raise
            raise UserError(f"{self.path}: cannot be written: {error.strerror}.") from None
