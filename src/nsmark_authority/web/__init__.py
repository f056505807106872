"""The authority on the web: REST under ``/v1``; the process that serves it imports no torch."""
