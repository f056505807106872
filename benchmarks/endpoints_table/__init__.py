"""Parts of ``endpoints.py``: asking through the command line, servers, and the page about them."""
