"""Parts of ``pair_code.py``: what a pair code withstands, what it costs, and where it ends."""
