"""The page about attacks."""
