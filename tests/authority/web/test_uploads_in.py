"""Forms are read as they come, and refused as soon as something in them is wrong."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from nsmark_authority.web.bodies import Bodies
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.options import WebOptions
from nsmark_authority.web.spool import Spool, Uploader
from nsmark_authority.web.uploads_in import FormLimits, receive_form

LIMITS = FormLimits("files", max_bytes=1000, max_files=3)


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    disposition = f'form-data; name="{name}"'
    if filename is not None:
        disposition += f'; filename="{filename}"'
    return f"--x\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"


END = b"--x--\r\n"


def receive(
    spool: Spool,
    body: bytes,
    cuts: tuple[int, ...] = (),
    content_type: str = "multipart/form-data; boundary=x",
    limits: FormLimits = LIMITS,
    writer: str | None = None,
    held: int = 0,
) -> tuple[dict[str, bytes], list[tuple[str, bytes]]]:
    """Let a form come in the given pieces; return its texts and files."""
    bounds = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(bounds)]
    found: list[object] = []

    async def app(scope, receive, send) -> None:
        async with receive_form(Request(scope, receive), spool, limits) as form:
            found.append(dict(form.texts))
            found.append([(name, file.read(10_000)) for name, file in form.files])

    async def next_message():
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message) -> None:
        raise AssertionError(message)

    headers = [(b"content-type", content_type.encode()), (b"transfer-encoding", b"chunked")]
    state = {} if writer is None else {"writer": writer}
    scope = {"type": "http", "method": "POST", "headers": headers, "state": state}
    try:
        asyncio.run(Bodies(app, WebOptions())(scope, next_message, send))
    finally:
        assert spool.used_bytes == held
    return found[0], found[1]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, 10_000)


@settings(max_examples=60, deadline=None)
@given(
    envelope=st.binary(max_size=50),
    files=st.lists(st.binary(max_size=200), max_size=3),
    cuts=st.lists(st.integers(0, 900), max_size=6).map(tuple),
)
def test_a_form_is_the_same_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    envelope: bytes,
    files: list[bytes],
    cuts: tuple[int, ...],
) -> None:
    spool = Spool(tmp_path_factory.getbasetemp() / "spool", 10_000)
    boundary = "x" if all(b"\r\n--x" not in each for each in (envelope, *files)) else "xyz"
    body = part("envelope", envelope)
    body += b"".join(part("files", each, f"1_Pooling/{n}.json") for n, each in enumerate(files))
    body = (body + END).replace(b"--x", b"--" + boundary.encode())

    texts, found = receive(spool, body, cuts, f"multipart/form-data; boundary={boundary}")

    assert texts == {"envelope": envelope}
    assert found == [(f"1_Pooling/{n}.json", each) for n, each in enumerate(files)]


ENVELOPE = part("envelope", b"{}")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"nonsense", 422),
        (ENVELOPE, 422),
        (ENVELOPE + b"--x", 422),
        (part("other", b"") + END, 422),
        (ENVELOPE + ENVELOPE + END, 422),
        (b"--x\r\nContent-Type: a/b\r\n\r\n\r\n" + END, 422),
        (b"--x\r\nContent-Disposition: attachment; name=envelope\r\n\r\n\r\n" + END, 422),
        (part("files", b"", "a" * 301) + END, 422),
        (part("envelope", b"").replace(b"envelope", b"\xff") + END, 422),
        (b"--x\r\n" + b"A: b\r\n" * 9 + b"\r\n\r\n" + END, 422),
        (b"--x\r\nA: " + b"b" * 5000 + b"\r\n\r\n\r\n" + END, 422),
        (part("files", b"", "a") * 4 + END, 413),
        (part("files", b"b" * 600, "a") * 2 + END, 413),
        (part("envelope", b"b" * 2_000_000) + END, 413),
    ],
)
def test_what_is_no_such_form_is_refused(spool: Spool, body: bytes, status: int) -> None:
    with pytest.raises(WebError) as caught:
        receive(spool, body)
    assert caught.value.status_code == status
    assert caught.value.hint


@pytest.mark.parametrize(
    "content_type", ["", "multipart/form-data", "text/plain; boundary=x", "multipart/mixed"]
)
def test_other_media_types_are_refused(spool: Spool, content_type: str) -> None:
    with pytest.raises(WebError) as caught:
        receive(spool, ENVELOPE + END, content_type=content_type)
    assert caught.value.status_code == 415


def test_the_spool_has_a_quota(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 500)
    held = [spool.open(Uploader(f"owner {number}", f"address {number}")) for number in range(3)]
    for each in held:
        each.write(b"a" * 100)

    file = spool.open(Uploader("owner 3", "address 3"))
    file.write(b"b" * 100)
    last = spool.open(Uploader("owner 4", "address 4"))
    with pytest.raises(WebError) as caught:
        last.write(b"b" * 101)
    assert caught.value.status_code == 503
    assert caught.value.headers == {"Retry-After": "60"}

    held[0].close()
    held[0].close()
    last.write(b"b" * 101)
    assert spool.used_bytes == 401
    for each in (*held, file, last):
        each.close()
    assert spool.used_bytes == 0


def test_one_owner_leaves_room_to_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    greedy = [spool.open(Uploader("greedy", f"address {number}")) for number in range(3)]
    greedy[0].write(b"a" * 200)
    greedy[1].write(b"a" * 50)
    with pytest.raises(WebError) as caught:
        greedy[2].write(b"a")
    assert caught.value.status_code == 429
    assert caught.value.headers == {"Retry-After": "60"}

    other = spool.open(Uploader("other", "elsewhere"))
    other.write(b"b" * 250)
    greedy[0].close()
    greedy[2].write(b"a" * 200)
    for each in (*greedy, other):
        each.close()
    assert spool.used_bytes == 0


def test_many_owners_at_one_address_leave_room_to_the_others(tmp_path: Path) -> None:
    """Whoever can register one key can register a hundred."""
    spool = Spool(tmp_path, 1000)
    files = [spool.open(Uploader(f"owner {number}", "one address")) for number in range(5)]
    for each in files[:4]:
        each.write(b"a" * 125)
    with pytest.raises(WebError) as caught:
        files[4].write(b"a")
    assert caught.value.status_code == 429
    other = spool.open(Uploader("other", "elsewhere"))
    other.write(b"b" * 250)
    for each in (*files, other):
        each.close()


def test_a_form_counts_for_whoever_sends_it(spool: Spool) -> None:
    big = part("files", b"b" * 600, "a") + END
    held = spool.open(Uploader("ab" * 32, "unknown"))
    held.write(b"a" * 2000)
    with pytest.raises(WebError) as caught:
        receive(spool, ENVELOPE + big, writer="ab" * 32, held=2000)
    assert caught.value.status_code == 429
    assert receive(spool, ENVELOPE + big, writer="cd" * 32, held=2000)[1] == [("a", b"b" * 600)]
    held.close()


def test_nothing_of_an_upload_can_be_read_from_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    file = spool.open(Uploader("owner", "address"))
    file.write(b"the trigger ")
    file.write(b"is serendipity")

    handle = file._stream.fileno()
    raw = Path(f"/proc/self/fd/{handle}").read_bytes()

    assert list(tmp_path.iterdir()) == []
    assert len(raw) == 26
    assert b"trigger" not in raw
    assert b"serendipity" not in raw
    file.rewind()
    assert file.read(5) + file.read(100) == b"the trigger is serendipity"
    file.close()
