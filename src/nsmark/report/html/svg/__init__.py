"""Charts as inline SVG: scales, axes, and the three plots of the page."""
