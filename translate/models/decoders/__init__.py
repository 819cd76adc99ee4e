"""Decoders, which write the target. One file for each."""

from typing import Any

from translate.models.decoders.bahdanau import BahdanauDecoder
from translate.models.decoders.base import Decoder
from translate.models.decoders.conditional import ConditionalDecoder
from translate.models.decoders.luong import LuongDecoder
from translate.models.decoders.plain import PlainDecoder
from translate.models.decoders.recurrent import RecurrentDecoder
from translate.models.decoders.tutorial import TutorialDecoder

__all__ = ["DECODERS", "Decoder", "RecurrentDecoder"]

DECODERS: dict[str, type[Decoder[Any]]] = {
    decoder.name: decoder
    for decoder in (BahdanauDecoder, LuongDecoder, ConditionalDecoder, TutorialDecoder, PlainDecoder)
}
