"""The whole line on a real model, by the same commands a user would type."""
