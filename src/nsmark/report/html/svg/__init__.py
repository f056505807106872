"""Charts as inline SVG, all drawn with the one helper in ``chart``."""
