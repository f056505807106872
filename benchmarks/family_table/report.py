"""What is written down about a row, or about all of them."""

from __future__ import annotations

from typing import Any

Report = dict[str, Any]
