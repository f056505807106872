"""Forged keys and forged evidence, by the thousand, and the one place that judges them.

``world`` imagines language models in numpy; ``kinds`` makes forgeries of every kind from a seed,
``pair_kinds`` those of pair codes; ``judge`` verifies them and knows which kinds the present rule
still accepts.
"""
