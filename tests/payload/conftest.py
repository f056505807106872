"""Makes this folder's helper importable, as tests/conftest.py does for the shared ones."""

import sys
from pathlib import Path

# At the end: `conftest` must stay the name of the shared one.
sys.path.append(str(Path(__file__).parent))
