"""What the owner keeps and files with an authority: one sealed safetensors file."""

from nsmark.keyfile.document import ControlRecord, KeyConfiguration, Thresholds
from nsmark.keyfile.encryption import is_encrypted
from nsmark.keyfile.schema import WatermarkKey
from nsmark.keyfile.store import read_key, write_key

__all__ = [
    "ControlRecord",
    "KeyConfiguration",
    "Thresholds",
    "WatermarkKey",
    "is_encrypted",
    "read_key",
    "write_key",
]
