"""`translate score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from translate.cli.options import DeviceOption, PluginOption, RunArgument

if TYPE_CHECKING:
    from translate.decoding.translator import Translation


def command(
    run: RunArgument,
    source: Annotated[Path, typer.Option(help="A file of sentences; - is stdin.")],
    target: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Add the log probability of every piece.")] = False,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """The log probability of given translations: for each line the sum, the number of pieces and the mean per piece."""
    import json
    import math
    import sys
    import time
    from itertools import islice

    from translate.cli.options import load_translator
    from translate.decoding.stream import MOST_LINES
    from translate.errors import DataError, UserError
    from translate.text.corpus import parallel_files

    if source == target == Path("-"):
        raise UserError("Only one of --source and --target can be -, stdin.")
    translator = load_translator(run, None, device)
    pairs = iter(parallel_files(source, target).pairs())
    begin, num_tokens = time.monotonic(), 0
    log_probs: list[float] = []
    while chunk := list(islice(pairs, MOST_LINES)):
        first = len(log_probs) + 1
        found = translator.force([pair.source for pair in chunk], [pair.target for pair in chunk], first)
        for one in found:
            num_tokens += len(one.tgt_ids)
            log_probs.append(one.log_prob)
            if not as_json:
                print(_line(one, tokens))
        sys.stdout.flush()
    if not log_probs:
        raise DataError(f"{source} and {target} have no sentence: there is nothing to score.")
    total = sum(log_probs)
    perplexity = math.exp(min(-total / num_tokens, 700.0))
    if as_json:
        summary = {"log_prob": total, "tokens": num_tokens, "perplexity": perplexity, "sentences": len(log_probs)}
        print(json.dumps({**summary, "log_probs": log_probs, "seconds": time.monotonic() - begin}))
        return
    print(
        f"{len(log_probs):,} sentences, {num_tokens:,} pieces with </s>: log probability {total:.2f}, "
        f"{total / num_tokens:.4f} a piece, perplexity {perplexity:.3f}",
        file=sys.stderr,
    )


def _line(one: Translation, tokens: bool) -> str:
    from translate.figures.labels import visible

    count = len(one.tgt_ids)
    columns = [f"{one.log_prob:.4f}", str(count), f"{one.log_prob / count:.4f}"]
    if tokens:
        pairs = zip(one.tokens, one.token_log_probs, strict=True)
        columns.append(" ".join(f"{visible(piece)}:{log_prob:.4f}" for piece, log_prob in pairs))
    return "\t".join(columns)
