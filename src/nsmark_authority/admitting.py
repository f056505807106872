"""The duty of admission: a filed key is examined in a child, and what came of it is logged."""

from __future__ import annotations

from nsmark_authority.confined_tasks import Examined, examine_key
from nsmark_authority.workbench import JobWatch, NotYetError, Workbench, key_of, printable, versions


def admit_filing(bench: Workbench, filing: str, watch: JobWatch) -> str:
    """Examine a filed key and log whether it is admitted; return what came of it.

    Args:
        bench: The authority and its children.
        filing: Entry id.
        watch: Told how far it is.

    Raises:
        NotYetError: There are too few control models.
        EndedError: The examination took too much: nobody can say whether the key is sound.
        NsmarkError: The authority's own trouble.
    """
    authority = bench.authority
    filed = authority.registry.filing(filing)
    if filed.state != "waiting":
        return filed.state
    watch.beat(0.0, "examining")
    control_set = bench.control_set()
    content = bench.key_file(filed)
    request, files = bench.request(key_of(content))
    on_tick = watch.between(0.0, 1.0, "examining")
    found = bench.run(examine_key, request, [content, *files], on_tick, Examined)
    reasons = printable(found.reasons)
    if found.state == "waiting":
        raise NotYetError(" ".join(reasons) or "the authority has too few control models")
    authority.record_admission(
        filing,
        admitted=found.state == "admitted",
        reasons=reasons,
        control_set=control_set,
        versions=versions(),
    )
    return found.state
