"""Parts of ``fidelity.py``: what all seeds say together, and the page."""
