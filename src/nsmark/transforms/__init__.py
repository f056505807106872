"""What people do to a model or to its outputs, innocently or to hide where they come from.

The same changes make controls out of an innocent model and simulated thefts out of a marked one.
"""
