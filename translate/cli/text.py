"""`translate text`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from translate.cli.options import BeamOption, DeviceOption, RunArgument


def command(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file to translate; - is stdin.")] = Path("-"),
    beam: BeamOption = None,
    nbest: Annotated[int, typer.Option(min=1, help="Translations per line, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate line by line: one line in, one line out, in order, as they come."""
    import sys

    from translate.cli.options import load_translator
    from translate.decoding.stream import line_chunks

    translator = load_translator(run, beam, device)
    if nbest > translator.search.beam:
        translator.search = translator.search.model_copy(update={"beam": nbest})
    done = 0
    for lines in line_chunks(file):
        for best in translator.translate(lines, num_best=nbest, first_line=done + 1):
            for translation in best:
                print(f"{translation.score:.4f}\t{translation.text}" if scores else translation.text)
        sys.stdout.flush()
        done += len(lines)
