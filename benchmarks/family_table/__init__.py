"""The parts of ``embedding_table.py``: one model of every kind, marked and measured."""
