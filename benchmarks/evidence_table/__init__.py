"""Parts of ``evidence.py``: suspects that no line was drawn from, and the page about them."""
