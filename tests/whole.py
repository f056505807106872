"""What `make test-all` adds to `make test`, and what each needs."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WHOLE = {
    "attacks/test_comparison_in_browser.py": "a browser",
    "attacks/test_suite.py": "processes that attack side by side",
    "authority/client/test_client.py": "servers",
    "authority/client/test_http.py": "servers",
    "authority/client/test_without_extras.py": "processes",
    "authority/test_backup.py": "PostgreSQL, processes that are killed",
    "authority/test_confinement.py": "processes in a sandbox",
    "authority/test_disputes_end_to_end.py": "servers and workers",
    "authority/test_durability.py": "PostgreSQL, processes that are killed",
    "authority/test_folder.py": "processes side by side",
    "authority/test_giving_way.py": "processes",
    "authority/test_outgoing.py": "servers",
    "authority/test_queueing.py": "Redis and workers",
    "authority/test_sandbox.py": "processes in a sandbox",
    "authority/test_walk_through.py": "servers and workers",
    "authority/test_worker.py": "workers",
    "authority/web": "servers and browsers",
    "benchmarks": "every benchmark once, on tiny models",
    "authority/cli/test_authority.py": "servers",
    "authority/cli/test_client.py": "servers",
    "authority/cli/test_serve.py": "servers, workers and PostgreSQL",
    "embedding/test_parallel.py": "torchrun",
    "forgeries": "hundreds of forged keys",
    "report/html/test_browser.py": "a browser",
    "suspects/test_infinity.py": "a real embeddings server",
}
"""Files and folders of tests, each with what it needs."""
FIXTURES = {"postgres": "PostgreSQL", "together": "torchrun"}
"""The same of single tests, told by the fixture."""


def mark_whole(items: list[pytest.Item]) -> None:
    """Mark the tests that only `make test-all` runs."""
    for item in items:
        place = item.path.relative_to(TESTS)
        reasons = [WHOLE.get(each.as_posix()) for each in (place, *place.parents)]
        reasons += [FIXTURES.get(name) for name in getattr(item, "fixturenames", ())]
        on_postgresql = "postgresql" in item.name  # a parameter; the fixture is asked for later
        if (any(reasons) or on_postgresql) and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.whole)
