"""Reference model + payload → watermarked model + extractor (needs torch)."""
