"""A report on a corpus: plain text for the terminal, or one HTML page without external resources."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from translate.figures.labels import label
from translate.text.clean import FAULTS
from translate.text.inspection import FileFacts, Finding, Histogram, Inspection, Side

BAR_CELLS = 40
TEXT_CELLS = 100
LINES_SHOWN = 10
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;border-bottom:1px solid #d0d7de;"
    "text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "tr.bad td:first-child{font-weight:600}.muted{color:#656d76}rect{fill:#1f6feb}text{font-size:11px;fill:#1f2328}"
    ".charts{display:flex;flex-wrap:wrap;gap:1.5rem}h2{margin-top:2rem}.pair{margin:.6rem 0}"
)


def as_text(report: Inspection) -> str:
    """The report in plain text."""
    lines = [f"{report.name}: {report.pairs:,} pairs", ""]
    for name, side in (("source", report.source), ("target", report.target)):
        lines.append(f"{name}  {_side(side)}")
    lines.append(f"target characters for each source character, by the median: {report.ratio:.2f}")
    lines += ["", *(f"{facts.name}: {text}" for facts in report.files for text in _file(facts)), ""]
    width = max(map(len, FAULTS))
    for fault, finding in report.findings.items():
        where = f"  lines {_lines(finding)}" if finding.count else ""
        lines.append(f"{fault:<{width}}  {finding.count:>9,}{where}")
    lines += ["", f"source sentences that occurred before, with any translation: {report.repeated_sources:,}"]
    for overlap in report.overlap:
        share = overlap.in_training / max(overlap.sentences, 1)
        seen = f"{overlap.in_training:,} of {overlap.sentences:,} sources ({share:.1%})"
        lines.append(f"{overlap.name}: {seen} are in training too")
    for name, histogram in report.histograms.items():
        lines += ["", name, *_bars(histogram)]
    lines += ["", "the most unusual pairs"]
    for pair in report.strangest:
        why = f"  ({', '.join(pair.faults)})" if pair.faults else ""
        lines.append(f"line {pair.line}{why}")
        lines += [f"  {label(pair.source, TEXT_CELLS)}", f"  {label(pair.target, TEXT_CELLS)}"]
    return "\n".join(lines) + "\n"


def as_html(report: Inspection) -> str:
    """The report as one page without scripts; all content of the corpus is shown as text."""
    rows = []
    for fault, finding in report.findings.items():
        kind = ' class="bad"' if finding.count else ""
        where = _lines(finding) if finding.count else ""
        rows.append(
            f'<tr{kind}><td>{fault}</td><td class="n">{finding.count:,}</td><td>{where}</td>'
            f'<td class="muted">{escape(FAULTS[fault])}</td></tr>'
        )
    sides = "".join(
        f"<tr><td>{name}</td><td>{escape(_side(side))}</td></tr>"
        for name, side in (("source", report.source), ("target", report.target))
    )
    files = "".join(
        f"<tr><td>{escape(facts.name)}</td><td>{escape(text)}</td></tr>"
        for facts in report.files
        for text in _file(facts)
    )
    overlap = "".join(
        f"<tr><td>{escape(part.name)}</td><td>{part.in_training:,} of {part.sentences:,} sources are in training too"
        "</td></tr>"
        for part in report.overlap
    )
    charts = "".join(f"<div><h3>{name}</h3>{_svg(histogram)}</div>" for name, histogram in report.histograms.items())
    strange = "".join(
        f'<div class="pair"><b>line {pair.line}</b> <span class="muted">{escape(", ".join(pair.faults))}</span>'
        f"<br>{escape(label(pair.source, 400))}<br>{escape(label(pair.target, 400))}</div>"
        for pair in report.strangest
    )
    title = escape(report.name)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1><p>{report.pairs:,} pairs; "
        f"{report.ratio:.2f} target characters for each source character, by the median; {report.repeated_sources:,} "
        f"source sentences occurred before.</p><table>{sides}{files}{overlap}</table><h2>What is wrong</h2><table>"
        f"<tr><th>fault</th><th>pairs</th><th>lines</th><th></th></tr>{''.join(rows)}</table>"
        f'<h2>Lengths</h2><div class="charts">{charts}</div><h2>The most unusual pairs</h2>{strange}</body></html>\n'
    )


def _side(side: Side) -> str:
    scripts = ", ".join(f"{name.lower()} {share:.1%}" for name, share in list(side.scripts.items())[:3])
    odd = f"; {side.odd_space_lines:,} lines with no-break or other odd spaces" if side.odd_space_lines else ""
    return (
        f"{side.words:,} words, {side.characters:,} characters; words a line: mean {side.mean_words:.1f}, "
        f"median {side.median_words:g}, longest {side.longest_words:,}; letters: {scripts or 'none'}{odd}"
    )


def _file(facts: FileFacts) -> Iterator[str]:
    """Remarks on a file; none if nothing is unusual."""
    if facts.byte_order_mark:
        yield "starts with a byte-order mark, which is not read as text"
    if facts.crlf_lines:
        yield f"{facts.crlf_lines:,} of {facts.lines:,} lines end in CR LF; the CR is not read as text"
    if not facts.final_newline:
        yield "the last line has no newline"
    if facts.ragged_rows:
        where = _lines_of(facts.first_ragged, facts.ragged_rows)
        yield f"rows with fewer than two columns: {facts.ragged_rows:,} (lines {where})"


def _lines(finding: Finding) -> str:
    return _lines_of(finding.lines, finding.count)


def _lines_of(lines: list[int], count: int) -> str:
    return ", ".join(map(str, lines[:LINES_SHOWN])) + (" …" if count > LINES_SHOWN else "")


def _names(histogram: Histogram) -> list[str]:
    edges = histogram.edges
    whole = all(edge == int(edge) for edge in edges)
    names = [
        (f"{low:g}" if high - low == 1 else f"{low:g}-{high - 1:g}") if whole else f"{low:g}-{high:g}"
        for low, high in pairwise(edges)
    ]
    return [*names, f"{edges[-1]:g}+"]


def _bars(histogram: Histogram) -> Iterator[str]:
    names = _names(histogram)
    width, most = max(map(len, names)), max(1, *histogram.counts)
    for name, count in zip(names, histogram.counts, strict=True):
        bar = "█" * round(BAR_CELLS * count / most) or ("▏" if count else "")
        yield f"  {name:>{width}} {count:>9,} {bar}".rstrip()


def _svg(histogram: Histogram) -> str:
    names, row, most = _names(histogram), 18, max(1, *histogram.counts)
    parts = []
    for place, (name, count) in enumerate(zip(names, histogram.counts, strict=True)):
        width = max(1 if count else 0, round(160 * count / most))
        middle = place * row + 13
        parts.append(f'<text x="62" y="{middle}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="68" y="{place * row + 3}" width="{width}" height="{row - 5}"/>')
        parts.append(f'<text x="{72 + width}" y="{middle}">{count:,}</text>')
    return f'<svg width="290" height="{row * len(names)}" role="img">{"".join(parts)}</svg>'
