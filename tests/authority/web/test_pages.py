"""The pages as they are sent: sound, escaped, and each leading on to the next."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority_server import RunningAuthority, running_authority
from authority_world import KeyOwner
from html_pages import HOSTILE, Tags, ids_of, parse
from nsmark_authority import records, statements
from nsmark_authority.service import Authority
from nsmark_authority.transparency import MemoryTree, hash_leaf, inclusion_proof, tree_root
from nsmark_authority.web.app import create_app
from nsmark_authority.web.documents import MAX_CHECKED_BYTES
from nsmark_authority.web.errors import PROBLEM_TYPE
from nsmark_authority.web.pages import words
from nsmark_authority.web.pages.lists import PAGE_ROWS
from nsmark_authority.web.pages.proof_steps import proof_steps
from nsmark_authority.web.pages.rendering import POLICY
from pages_world import FIELDS, World, build_world, page_paths
from processes import PATIENCE

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ROOT = Path(__file__).parents[3]
WEB = ROOT / "src/nsmark_authority/web"
LINK = re.compile(r'(?:href|src|action)="([^"]+)"')


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAuthority]:
    with running_authority(tmp_path_factory.mktemp("pages"), "--answer-days", "0") as running:
        yield running


@pytest.fixture(scope="module")
def world(running: RunningAuthority) -> Iterator[World]:
    world = build_world(running)
    yield world
    world.authority.close()


@pytest.fixture(scope="module")
def reader(running: RunningAuthority) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=running.url, headers=PAGE, trust_env=False, timeout=PATIENCE
    ) as client:
        yield client


@pytest.fixture(scope="module")
def pages(reader: httpx.Client, world: World) -> dict[str, str]:
    """All pages, by name."""
    found = {}
    for name, path in page_paths(world).items():
        answer = reader.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
        found[name] = answer.text
    return found


def test_pages_are_well_formed_and_run_only_files_of_ours(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        tags = parse(page)
        assert not {"img", "iframe", "style", "object", "embed", "base"} & set(tags.tags), name
        names = {attribute for attribute, _ in tags.attributes}
        assert not {each for each in names if each.startswith("on")}, name
        assert "style" not in names, name
        assert re.findall(r"<script(?! src=\"/static/[0-9a-f]{16}/[a-z]+\.js\")", page) == []
        assert re.search(r"<script[^>]*>[^<]", page) is None
        for address in LINK.findall(page):
            assert address.startswith(("/", "#")), (name, address)
            assert not address.startswith("//")


def test_pages_can_be_found_through_by_ear(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        tags = parse(page)
        for landmark in ("header", "nav", "main", "footer"):
            assert landmark in tags.tags, (name, landmark)
        assert tags.tags.count("main") == tags.tags.count("h1") == 1
        assert len(ids_of(tags)) == len(set(ids_of(tags))), name
        levels = [int(tag[1]) for tag in tags.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), name
        assert tags.tags.count("table") == tags.tags.count("caption")
        assert page.count("<th ") == len(re.findall(r'<th scope="(?:col|row)"', page))
        fields = set(re.findall(r'<(?:input|select)[^>]*? id="([^"]+)"', page))
        assert fields == set(re.findall(r'<label for="([^"]+)"', page)), name
        assert len(fields) == tags.tags.count("input") + tags.tags.count("select")
        described = re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', page)
        assert set(described) <= set(ids_of(tags)), name
        assert 'lang="en"' in page


def test_every_link_leads_somewhere(reader: httpx.Client, pages: dict[str, str]) -> None:
    addresses = {address for page in pages.values() for address in LINK.findall(page)}
    leading = sorted(each.replace("&amp;", "&") for each in addresses if each.startswith("/"))

    assert len(leading) > 60
    for address in leading:
        # An evidence of a made-up claim is the only thing that does not exist in this world.
        if "ab" * 32 not in address:
            assert reader.get(address, follow_redirects=True).status_code == 200, address


def test_what_owners_write_stays_text(pages: dict[str, str]) -> None:
    everything = "\n".join(pages.values())
    for field in FIELDS:
        assert re.search(rf"{field}&#34;&#39;&gt;&lt;img src=x", everything, re.I), field
    assert "<img" not in everything
    assert "<script>" not in everything
    assert "{{7*7}}" in everything  # shown, not computed
    titles = re.findall("<title>(.*?)</title>", everything, re.S)
    assert any("owner-name" in each for each in titles)
    assert 'href="javascript:' not in everything


def test_the_first_page_says_who_it_is(
    pages: dict[str, str], world: World, running: RunningAuthority
) -> None:
    text = parse(pages["home"]).text
    assert world.name in text
    assert world.authority.public_key.fingerprint in text
    assert f"{world.authority.log.size()} entries" in text
    assert world.authority.log.checkpoint().decode().splitlines()[2] in text
    assert "This authority stamps times with a key of its own." in text
    assert f"nsmark client trust {running.url} --fingerprint" in text
    assert all("Local time stamps." in parse(page).text for page in pages.values())


def test_a_claim_shows_what_became_of_it(pages: dict[str, str], world: World) -> None:
    admitted, refused = parse(pages["claim-admitted"]).text, parse(pages["claim-refused"]).text
    successor = pages["claim-successor"]

    assert "succeeded Revealed in a dispute" in admitted
    assert "Example Lab" in admitted
    assert world.authority.registry.filing(world.ids["admitted"]).key_id in admitted
    assert f"/claims/{world.ids['successor']}" in pages["claim-admitted"]
    assert f"/claims/{world.ids['admitted']}" in successor
    assert "Takes the place of" in parse(successor).text
    assert f"/disputes/{world.ids['ruled']}" in pages["claim-admitted"]
    assert "The authority refused the key" in refused
    assert "It accepts a control." in refused
    assert "Not decided yet." in parse(pages["claim-waiting"]).text
    assert f'/v1/receipts/{world.ids["waiting"]}" download=' in pages["claim-waiting"]
    assert "before it was decided" in parse(pages["hostile-withdrawn"]).text


def test_a_dispute_shows_both_sides_and_the_ruling(pages: dict[str, str], world: World) -> None:
    page, text = pages["dispute-ruled"], parse(pages["dispute-ruled"]).text

    assert "The suspect carries the watermark of Example Lab , whose key was filed" in text
    assert "The signature was read in 24 of 24 texts." in text
    assert "It answers our trigger. We sell it not." in text
    assert "We trained it ourselves." in text
    assert f"/entries/{world.ids['deposit']}" in page
    assert "Other claims to the same suspect" in text
    assert f"/claims/{world.ids['waiting']}" in page
    report = f'/v1/disputes/{world.ids["ruled"]}/report" target="_blank" rel="noopener noreferrer"'
    assert report in page
    assert "progress.js" not in page
    assert "http-equiv" not in page


def test_an_open_dispute_shows_progress_with_and_without_scripts(
    pages: dict[str, str], world: World
) -> None:
    page = pages["dispute-open"]
    assert '<noscript><meta http-equiv="refresh" content="15" /></noscript>' in page
    assert f'data-events="/v1/disputes/{world.ids["open"]}/events"' in page
    assert 'aria-live="polite"' in page
    assert "Waiting for a worker." in parse(page).text
    hostile = parse(pages["dispute-hostile-open"]).text
    assert "The suspect is being measured." in hostile
    assert "50 %" in hostile


def test_an_entry_shows_its_statement_and_its_proof(pages: dict[str, str], world: World) -> None:
    log = world.authority.log
    ruling = log.entry(world.ids["ruling"])
    text = parse(pages[f"entry-{ruling.index}"]).text
    root = MemoryTree()
    for entry in log.entries():
        root.append(hash_leaf(entry.entry))

    assert "Ruling in a dispute" in text
    assert "Outcome upheld" in text
    assert "Evidence › Extraction rate 1" in text
    assert "Versions › nsmark 0.1.0" in text
    assert "Other claims › Owner Second Works" in text
    assert ruling.entry_id in text
    assert hash_leaf(ruling.entry).hex() in text
    assert tree_root(root, log.size()).hex() in text
    assert f'href="/entries/{world.ids["ruled"]}"' in pages[f"entry-{ruling.index}"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 21])
def test_steps_of_a_proof_lead_to_the_root(size: int) -> None:
    tree = MemoryTree()
    leaves = [hash_leaf(bytes([number])) for number in range(size)]
    for leaf in leaves:
        tree.append(leaf)
    for index, leaf in enumerate(leaves):
        proof = inclusion_proof(tree, index, size)
        steps = proof_steps(proof, leaf=leaf, index=index, size=size)
        found = steps[-1].result if steps else leaf.hex()
        assert found == tree_root(tree, size).hex()


def test_ids_lead_to_their_pages(reader: httpx.Client, world: World) -> None:
    key_id = world.authority.registry.filing(world.ids["admitted"]).key_id
    defence = world.authority.log.entry(world.ids["defence"])
    for path, place in (
        (f"/entries/{world.ids['admitted']}", f"/claims/{world.ids['admitted']}"),
        (f"/entries/{world.ids['ruled']}", f"/disputes/{world.ids['ruled']}"),
        (f"/entries/{world.ids['defence']}", f"/log/{defence.index}"),
        (f"/keys/{key_id}", f"/claims/{world.ids['admitted']}"),
    ):
        answer = reader.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, place)


def test_claims_are_searched(reader: httpx.Client, world: World) -> None:
    def found(**query: str) -> list[str]:
        page = reader.get("/claims", params=query).text
        return re.findall(r'<a href="/claims/([0-9a-f]{64})">', page)

    ids = world.ids
    key_id = world.authority.registry.filing(ids["admitted"]).key_id
    assert found(text="ENCODER-v2") == [ids["successor"], ids["admitted"]]
    assert found(text=f"  {key_id[:12].upper()} ") == [ids["admitted"]]
    assert found(text="second works", state="refused") == [ids["refused"]]
    assert found(text="no such words") == []
    assert "No claim fits this search." in reader.get("/claims?text=nothing").text
    page = reader.get("/claims", params={"text": '"><script>alert(1)</script>\u202e'}).text
    assert 'value="&#34;&gt;&lt;script&gt;' in page
    assert "\u202e" not in page


def test_disputes_are_listed_by_state(reader: httpx.Client, world: World) -> None:
    page = reader.get("/disputes?state=ruled").text
    assert f"/disputes/{world.ids['ruled']}" in page
    assert f"/disputes/{world.ids['open']}" not in page
    assert "Example Lab" in page


def test_long_lists_come_in_parts(serve, authority: Authority, owner: KeyOwner) -> None:
    num_keys = PAGE_ROWS + 3
    filed = [owner.file(authority, number).entry_id for number in range(num_keys)]
    with httpx.Client(base_url=serve(), headers=PAGE, trust_env=False, timeout=PATIENCE) as client:
        for begin in ("/claims?text=handmade", f"/owners/{owner.fingerprint}"):
            path, seen = begin, []
            while path:
                page = client.get(path).text
                seen += re.findall(r'<a href="/claims/([0-9a-f]{64})">', page)
                following = re.search(r'<a href="([^"]+)" rel="next">', page)
                path = following[1].replace("&amp;", "&") if following else ""
            assert seen == filed[::-1]
            assert ">Newest</a>" in page
        first = client.get("/log?start=0").text
        assert f'href="/log?start={PAGE_ROWS}" rel="next"' in first
        last = client.get("/log").text
        assert f"Entries {num_keys + 1 - PAGE_ROWS} to {num_keys}" in last
        assert "There are no entries from here on." in client.get("/log?start=9999").text


def test_an_empty_authority_has_all_its_pages(serve, authority: Authority) -> None:
    with httpx.Client(base_url=serve(), headers=PAGE, trust_env=False, timeout=PATIENCE) as client:
        for path in ("/", "/claims", "/disputes", "/log", "/publications", "/check"):
            answer = client.get(path)
            assert answer.status_code == 200
            parse(answer.text)


# --- Receipts. ---


def post_receipt(client: httpx.Client, content: bytes) -> httpx.Response:
    return client.post("/check", files={"receipt": ("r.receipt", content, "application/json")})


def test_a_receipt_is_checked_on_the_server(reader: httpx.Client, world: World) -> None:
    receipt = world.authority.log.receipt(world.ids["admitted"])
    good = post_receipt(reader, receipt.to_json())
    bad = post_receipt(reader, receipt.to_json().replace(b'"index":6', b'"index":5'))
    nonsense = post_receipt(reader, b"<script>alert(1)</script>")

    assert good.status_code == bad.status_code == nonsense.status_code == 200
    text = parse(good.text).text
    assert "Valid Entry 6, a filing, is in the log since" in text
    assert receipt.entry_id in text
    assert "The time is this authority’s own word." in text
    assert "Not valid" in parse(bad.text).text
    assert "The inclusion proof does not hold" in parse(bad.text).text
    assert "The receipt is no JSON object in UTF-8." in parse(nonsense.text).text


def test_a_hostile_receipt_stays_text(reader: httpx.Client, world: World) -> None:
    receipt = world.authority.log.receipt(world.ids["hostile-filing"])
    page = post_receipt(reader, receipt.to_json()).text
    assert "owner-name&#34;" in page
    assert "<img" not in page


def test_a_form_without_a_receipt_is_refused_with_a_page(
    reader: httpx.Client, running: RunningAuthority
) -> None:
    empty = post_receipt(reader, b"")
    large = post_receipt(reader, b"x" * (2 * MAX_CHECKED_BYTES))
    two = reader.post("/check", files=[("receipt", b"x"), ("receipt", b"y")])
    other = reader.post("/check", content=b"{}", headers={"Content-Type": "application/json"})

    assert [each.status_code for each in (empty, large, two, other)] == [422, 413, 413, 415]
    assert "No file was chosen." in parse(empty.text).text
    for answer in (large, two, other):
        assert answer.headers["content-type"].startswith("text/html")
        assert "<h1>" in answer.text
    assert list((running.folder / "incoming").iterdir()) == []


# --- Without a body. ---


@pytest.mark.parametrize("path", ["/", "/claims", "/disputes", "/log", "/check", "/publications"])
def test_head_is_get_without_a_body(reader: httpx.Client, path: str) -> None:
    got, head = reader.get(path), reader.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert dict(head.headers) | {"date": ""} == dict(got.headers) | {"date": ""}


# --- Errors. ---


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", f"/claims/{'ab' * 32}", 404),
        ("GET", f"/owners/{'ab' * 32}", 404),
        ("GET", f"/disputes/{'ab' * 32}", 404),
        ("GET", f"/entries/{'ab' * 32}", 404),
        ("GET", "/log/99999", 404),
        ("GET", "/static/0000000000000000/authority.css", 404),
        ("GET", "/claims/%3Cscript%3E", 422),
        ("GET", "/claims?state=nonsense", 422),
        ("GET", "/claims?cursor=nonsense", 422),
        ("GET", "/log?start=-1", 422),
        ("POST", "/claims", 405),
    ],
)
def test_errors_are_pages_for_people_and_problems_for_programs(
    reader: httpx.Client, world: World, method: str, path: str, status: int
) -> None:
    page = reader.request(method, path)
    problem = reader.request(method, path, headers={"Accept": "*/*"})

    assert page.status_code == problem.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert f"Error {status}" in parse(page.text).text
    assert "<script" not in page.text
    assert problem.headers["content-type"] == PROBLEM_TYPE
    if status == 405:
        assert page.headers["allow"] == "GET, HEAD"


def test_the_api_answers_browsers_with_problems(reader: httpx.Client, world: World) -> None:
    answer = reader.get(f"/v1/filings/{'ab' * 32}")
    assert answer.headers["content-type"] == PROBLEM_TYPE


def test_too_many_requests_are_told_on_a_page(serve) -> None:
    with httpx.Client(
        base_url=serve(reads_per_minute=2), headers=PAGE, trust_env=False, timeout=PATIENCE
    ) as client:
        answers = [client.get("/check") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    assert "Too many requests" in parse(answers[2].text).text


def test_a_bug_is_told_on_a_page_without_its_message(authority: Authority) -> None:
    app = create_app(authority)

    @app.get("/bug")
    def bug() -> None:
        raise RuntimeError("hunter2")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get("/bug", headers=PAGE)

    answer = asyncio.run(ask())

    assert answer.status_code == 500
    assert "Something went wrong" in parse(answer.text).text
    assert "hunter2" not in answer.text
    assert answer.headers["content-security-policy"] == POLICY


def test_pages_are_no_part_of_the_api(authority: Authority) -> None:
    paths = create_app(authority).openapi()["paths"]
    assert paths
    assert all(path.startswith("/v1/") for path in paths)


# --- Files, words and colours. ---


def test_files_are_kept_by_browsers_until_they_change(
    reader: httpx.Client, pages: dict[str, str]
) -> None:
    addresses = set(re.findall(r'"(/static/[^"]+)"', "".join(pages.values())))
    assert {each.rpartition("/")[2] for each in addresses} == {
        path.name for path in (WEB / "static").iterdir()
    }
    for address in addresses:
        answer = reader.get(address)
        assert "immutable" in answer.headers["cache-control"]
        assert answer.content == (WEB / "static" / address.rpartition("/")[2]).read_bytes()
    assert b"http" not in (WEB / "static/authority.css").read_bytes()


def test_templates_and_files_are_packed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["nsmark_authority"]
    files = [*(WEB / "templates").iterdir(), *(WEB / "static").iterdir()]
    assert len(files) > 12
    for path in files:
        name = str(path.relative_to(ROOT / "src/nsmark_authority"))
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name


def test_every_state_and_outcome_has_words() -> None:
    assert set(words.FILING_STATES) == set(get_args(records.FilingState))
    assert set(words.DISPUTE_STATES) == set(get_args(records.DisputeState))
    assert set(words.OUTCOMES) == set(words.SENTENCES) == set(get_args(statements.Outcome))
    assert set(words.KINDS) == {each.kind for each in statements.STATEMENTS.values()}


@given(st.text() | st.sampled_from(HOSTILE))
def test_outside_text_is_shown_and_cannot_act(text: str) -> None:
    for shown in (str(words.said(text)), str(words.prose(text))):
        inside = re.sub(r'</?(?:bdi|span)(?: class="(?:said|odd)")?>', "", shown)
        assert "<" not in inside
        assert '"' not in inside
        assert all(each == "\n" or each.isprintable() for each in shown)
        tags = Tags()
        tags.feed(shown)
        assert set(tags.tags) <= {"bdi", "span"}
        assert tags.open == []
    assert all(each == "\n" or each.isprintable() for each in words.plain(text))


def test_marks_do_not_pile_up_and_long_texts_are_cut() -> None:
    assert len(words.said("Z" + "\u0336" * 5_000, 10_000)) < 60
    assert words.said("W" * 500, 10) == '<bdi class="said">WWWWWWWWWW</bdi>… (500 characters)'
    assert "\n" not in words.said("a\nb")
    assert words.plain("a\u202eb") == "a[U+202E]b"
    assert words.prose("a\n\n\n\n\nb") == '<bdi class="said">a\n\nb</bdi>'


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (words.size(1), "1\N{NO-BREAK SPACE}byte"),
        (words.size(9_312), "9.31\N{NO-BREAK SPACE}kB"),
        (words.size(999_999), "1\N{NO-BREAK SPACE}MB"),
        (words.duration(14 * 86_400), "14 days"),
        (words.duration(90), "90 seconds"),
        (words.count(1, "entry", "entries"), "1 entry"),
        (words.figure(0.12345678), "0.1235"),
        (words.figure(True), "yes"),
        (words.sentence("no such thing"), "No such thing."),
        (words.when("2026-01-31T12:00:00Z"), words.when("2026-01-31T12:00:00Z")),
        (words.when("<b>"), "&lt;b&gt;"),
    ],
)
def test_figures_in_words(found: str, expected: str) -> None:
    assert found == expected


def palettes() -> dict[str, dict[str, str]]:
    """The custom properties of the style sheet, light and dark."""
    style = (WEB / "static/authority.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in blocks)
    assert set(light) == set(dark)
    return {"light": light, "dark": dark}


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "ground", "least"),
    [
        *itertools.product(
            ("ink", "quiet", "link", "good", "bad", "caution", "neutral"),
            ("ground", "raised"),
            (4.5,),
        ),
        ("button-ink", "button", 4.5),
        *((name, f"{name}-ground", 4.5) for name in ("good", "neutral", "caution", "bad")),
        *(("ink", f"{name}-ground", 4.5) for name in ("good", "neutral", "caution", "bad")),
        ("quiet", "good-ground", 4.5),
        # Edges of fields and the ring of what has the focus: no letters.
        ("edge", "ground", 3.0),
        ("edge", "raised", 3.0),
        ("focus", "ground", 3.0),
        ("focus", "raised", 3.0),
    ],
)
def test_colours_have_enough_contrast(scheme: str, ink: str, ground: str, least: float) -> None:
    palette = palettes()[scheme]
    light, dark = sorted((luminance(palette[ink]), luminance(palette[ground])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= least


def test_all_colours_come_from_the_palette() -> None:
    style = (WEB / "static/authority.css").read_text()
    rules = re.sub(r":root \{.*?\}", "", style, flags=re.S)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgb|\bhsl", rules) == []
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= set(palettes()["light"])
