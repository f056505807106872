"""The certification authority: a registry of keys with proven dates, and rulings on suspects."""
