"""Alignments as one self-contained HTML page that shows the weights of a word under the pointer."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from translate.figures.labels import visible

# Measures to sort sentences by: key, title, and whether a higher value is worse (1) or better (-1).
MEASURES = (("aer", "AER", 1), ("score", "score", -1))

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title} <small id="count"></small></h1>
<label>Order <select id="order"><option value="line">by line</option></select></label>
<button id="worst" type="button">Worst, then next</button>
<label>Word <input id="filter" type="search" autocomplete="off"></label>
</header>
<main>
<p class="hint">Source above, target below. Point at a word, or reach it with the Tab key: the greater its weight on a
word of the other side, the darker that word becomes; the words it is linked to are underlined; ∅ is no word.
Right-to-left text runs from the right.</p>
<div id="list"></div>
<button id="more" type="button" hidden></button>
<noscript>This page needs JavaScript, all of which is in it.</noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(records: Iterable[Mapping[str, Any]], title: str) -> str:
    """Make the page of alignment records; all their content is shown as text."""
    sentences = [_sentence(record) for record in records]
    measures = [measure for measure in MEASURES if any(sentence[measure[0]] is not None for sentence in sentences)]
    style, script = (files(__package__).joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    return PAGE.format(
        policy=policy,
        title=html.escape(visible(title)),
        style=style,
        data=_embedded({"measures": measures, "sentences": sentences}),
        script=script,
    )


def _sentence(record: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a record that the page needs, with weights in thousandths."""
    back = record.get("reverse_word_weights")
    return {
        "line": record["line"],
        "source": [visible(word) for word in record["source_words"]],
        "target": [visible(word) for word in record["target_words"]],
        "weights": _thousandths(record["word_weights"]),
        "back": None if back is None else _thousandths(back),
        "links": record["links"],
        **{name: record.get(name) for name, *_ in MEASURES},
    }


def _thousandths(rows: Sequence[Sequence[float]]) -> list[list[int]]:
    return [np.rint(1000 * np.nan_to_num(np.asarray(row, np.float64))).astype(int).tolist() for row in rows]


def _embedded(value: Any) -> str:
    """JSON that can neither end the script element around it nor open a comment in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """The source expression that allows exactly this text in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
