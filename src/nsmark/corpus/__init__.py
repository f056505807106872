"""Built-in English corpus for watermark embedding when the user brings none."""

from nsmark.corpus.builtin import TOPICS, labelled_texts, pool_texts, training_texts

__all__ = ["TOPICS", "labelled_texts", "pool_texts", "training_texts"]
