"""Where corpora and pools come from: rows of text, columns, dataset folders, the hub."""
