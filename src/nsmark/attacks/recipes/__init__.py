"""One file per attack; each defines ``RECIPE``."""
