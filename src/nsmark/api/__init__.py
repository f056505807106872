"""The two calls most users need, composed from the layers below."""

from nsmark.api.marking import EmbedResult, embed
from nsmark.api.verifying import verify

__all__ = ["EmbedResult", "embed", "verify"]
