"""All pages."""

from __future__ import annotations

from fastapi.routing import APIRoute

from nsmark_authority.web.pages import assets, claims, disputes, home, log, receipts

ROUTERS = tuple(part.router for part in (assets, home, claims, disputes, log, receipts))

# Whoever wants to know whether a page is there asks by HEAD; the server leaves out the body.
for _router in ROUTERS:
    for _route in _router.routes:
        if isinstance(_route, APIRoute) and _route.methods and "GET" in _route.methods:
            _route.methods.add("HEAD")
