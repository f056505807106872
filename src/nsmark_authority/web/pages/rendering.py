"""Templates, and answers that are pages."""

from __future__ import annotations

import functools
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from nsmark import __version__
from nsmark_authority.service import Authority
from nsmark_authority.web.pages import words
from nsmark_authority.web.pages.assets import asset_url

# Scripts and styles are files of ours; nothing is loaded from, or sent to, another host.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_FILTERS = (
    words.count,
    words.duration,
    words.figure,
    words.first_line,
    words.label,
    words.plain,
    words.prose,
    words.said,
    words.sentence,
    words.short,
    words.size,
    words.when,
)


def page(authority: Authority, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page.

    Args:
        authority: Whose page it is.
        template: Name of its file.
        status: Of the answer.
        values: What the template shows; all of it is escaped.
    """
    content = (
        _environment()
        .get_template(template)
        .render(authority_name=authority.name, is_local_time=authority.is_local_time, **values)
    )
    headers = {"Content-Security-Policy": POLICY}
    # A lone surrogate has no UTF-8; nothing that is logged holds one, a path that is asked for may.
    return HTMLResponse(content.encode("utf-8", "replace"), status, headers)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nsmark_authority.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    environment.globals.update(
        asset_url=asset_url,
        version=__version__,
        FILING_STATES=words.FILING_STATES,
        DISPUTE_STATES=words.DISPUTE_STATES,
        OUTCOMES=words.OUTCOMES,
        KINDS=words.KINDS,
        PUBLISHED=words.PUBLISHED,
        DEPOSITED=words.DEPOSITED,
    )
    return environment
