"""All pages."""

from __future__ import annotations

from nsmark.authority.web.pages import assets, claims, disputes, home, log, receipts

ROUTERS = tuple(part.router for part in (assets, home, claims, disputes, log, receipts))
