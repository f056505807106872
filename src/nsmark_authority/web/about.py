"""``/v1/authority``, ``/v1/health``."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import APIRouter, Request

from nsmark import __version__
from nsmark_authority.manifest import MAX_FILES
from nsmark_authority.web.context import Here
from nsmark_authority.web.models import About, Health, Limits

router = APIRouter(prefix="/v1", tags=["authority"])


@router.get("/authority", summary="Name, key and state of the authority")
def about(request: Request, here: Here) -> About:
    """Return what a checker of receipts needs, and what an owner should know."""
    authority, settings = here.authority, here.authority.settings
    return About(
        name=authority.name,
        version=__version__,
        public_key=authority.public_key.to_pem(),
        fingerprint=authority.public_key.fingerprint,
        roots=[root.public_bytes(Encoding.PEM).decode("ascii") for root in authority.roots],
        is_local_time=authority.is_local_time,
        checkpoint=authority.log.checkpoint().decode("utf-8"),
        answer_seconds=settings.answer_seconds,
        has_controls=bool(settings.control_models),
        has_worker=here.has_worker,
        limits=Limits(
            max_key_bytes=settings.max_key_bytes,
            max_model_bytes=settings.max_model_bytes,
            max_recorded_bytes=settings.max_recorded_bytes,
            max_files=MAX_FILES,
            reads_per_minute=here.options.reads_per_minute,
            writes_per_minute=here.options.writes_per_minute,
        ),
    )


@router.get("/health", summary="Whether the authority answers")
def health(here: Here) -> Health:
    """Look into the database."""
    return Health(status="ok", log_size=here.authority.log.size())
