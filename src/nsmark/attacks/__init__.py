"""Attacks on a mark, beside the main line: owners try them before a thief does."""

from nsmark.attacks.catalogue import ATTACKS, Attack, find_attack

__all__ = ["ATTACKS", "Attack", "find_attack"]
