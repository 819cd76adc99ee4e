"""Encoders, which read the source."""

from translate.models.encoders.base import Encoder
from translate.models.encoders.recurrent import BiGRUEncoder, BiLSTMEncoder, GRUEncoder, LSTMEncoder

__all__ = ["ENCODERS", "Encoder"]

ENCODERS: dict[str, type[Encoder]] = {
    encoder.name: encoder for encoder in (GRUEncoder, BiGRUEncoder, LSTMEncoder, BiLSTMEncoder)
}
