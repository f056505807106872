"""Opening, running and saving language models (needs torch)."""
