"""Parameters that had other names in older runs."""

from __future__ import annotations

# Old and new beginnings of names. Names of optimizer states and averages begin with the name of their parameter.
RENAMED = {
    "encoder.self_attention.": "self_attention.",
    "decoder.read_state.": "decoder.state_to_readout.",
    "decoder.read_token.": "decoder.token_to_readout.",
    "decoder.read_context.": "decoder.context_to_readout.",
    "decoder.out.fit.": "decoder.output.fit.",
    "decoder.out.": "decoder.output.vocabulary.",
    "decoder.copy.": "decoder.output.copy.",
}


def current_name(name: str) -> str:
    """The current name of a run's tensor."""
    for before, now in RENAMED.items():
        if name.startswith(before):
            return now + name.removeprefix(before)
    return name
