"""The pages as people use them: in chromium, by keyboard, with and without scripts."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from authority_server import RunningAuthority, running_authority
from nsmark.errors import NsmarkError
from nsmark.identity import Identity
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.transparency import Checkpoint, hash_leaf, sign_checkpoint
from offline_browser import PHONE, WIDE, chromium, require_chromium
from pages_world import World, build_world, hostile, page_paths, receipt_file
from processes import PATIENCE

require_chromium()

SHOWN = (
    "home",
    "claims",
    "claim-admitted",
    "claim-refused",
    "owner",
    "disputes",
    "dispute-ruled",
    "dispute-open",
    "log",
    "entry-16",
    "publications",
    "check",
    "hostile-owner",
    "hostile-filing",
    "hostile-withdrawn",
    "dispute-hostile-ruled",
    "dispute-hostile-open",
)
PICTURED = ("home", "claim-admitted", "dispute-ruled", "entry-16", "check")
OpenPage = Callable[..., Any]


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
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser: Any, running: RunningAuthority) -> Iterator[OpenPage]:
    """Open a page; afterwards nothing may have been complained of or asked for elsewhere."""
    contexts: list[Any] = []
    requests: list[str] = []
    messages: list[str] = []

    def open_page(path: str, width: int = WIDE, script: str = "", **options: Any) -> Any:
        context = browser.new_context(
            base_url=running.url, viewport={"width": width, "height": 900}, **options
        )
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: messages.append(message.text))
        context.on("weberror", lambda error: messages.append(str(error.error)))
        if script:
            context.add_init_script(script)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(f"{running.url}/")] == []


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_run_nothing_of_the_owners(
    opened: OpenPage, world: World, tmp_path: Path, width: int, scheme: str
) -> None:
    paths = page_paths(world)
    page = opened("/", width, color_scheme=scheme)
    grounds = set()
    for name in SHOWN:
        page.goto(paths[name])
        assert page.locator("h1").is_visible()
        sticking_out = page.evaluate(
            """() => [...document.querySelectorAll('body *')].filter(one => {
              const box = one.getBoundingClientRect();
              return box.width > 1 && box.right > innerWidth + 1;
            }).map(one => one.outerHTML.slice(0, 80))"""
        )
        assert sticking_out == [], name
        assert page.evaluate("document.documentElement.scrollWidth") == width, name
        assert page.evaluate("window.hit") is None, name
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        if name in PICTURED:
            shot = page.screenshot(full_page=True, path=tmp_path / f"{name}.png")
            assert len(shot) > 20_000, name
    assert grounds == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)"}


def test_letters_stand_out_from_what_is_behind_them(opened: OpenPage, world: World) -> None:
    """The colours as they are computed, not only as the style sheet names them."""
    paths = page_paths(world)
    for scheme in ("light", "dark"):
        page = opened("/", color_scheme=scheme)
        for name in ("home", "claim-refused", "dispute-ruled", "dispute-open", "check"):
            page.goto(paths[name])
            found = page.evaluate(
                """() => {
                  const ground = (one) => {
                    for (; one !== null; one = one.parentElement) {
                      const colour = getComputedStyle(one).backgroundColor;
                      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
                    }
                  };
                  return [...document.querySelectorAll('body *')]
                    .filter(one => [...one.childNodes].some(
                      node => node.nodeType === 3 && node.textContent.trim()))
                    .map(one => [getComputedStyle(one).color, ground(one)].join('|'));
                }"""
            )
            assert found
            for pair in set(found):
                ink, ground = (luminance(colour) for colour in pair.split("|"))
                light, dark = max(ink, ground), min(ink, ground)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, scheme, pair)


def luminance(colour: str) -> float:
    channels = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_keyboard_is_enough(opened: OpenPage, world: World) -> None:
    page = opened("/")
    page.keyboard.press("Tab")
    skip = page.evaluate(
        "[document.activeElement.className, document.activeElement.getBoundingClientRect().left]"
    )
    assert skip == ["skip", 0]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("second key")
    page.keyboard.press("Enter")
    page.wait_for_url("**/claims?text=second+key*")
    assert page.locator("tbody tr").count() == 1
    page.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/claims/{world.ids['successor']}")


def test_what_has_the_focus_is_seen(opened: OpenPage, world: World) -> None:
    page = opened("/claims")
    rings = []
    for _ in range(12):
        page.keyboard.press("Tab")
        rings.append(
            page.evaluate(
                """() => { const style = getComputedStyle(document.activeElement);
                return [style.outlineStyle, parseFloat(style.outlineWidth)]; }"""
            )
        )
    assert all(style == "solid" and width >= 2 for style, width in rings)


def test_screen_readers_hear_tables_on_phones(opened: OpenPage) -> None:
    page = opened("/claims", PHONE)
    assert page.get_by_role("table", name="Claims, newest first").count() == 1
    assert page.get_by_role("columnheader").count() == 4
    assert page.get_by_role("rowheader").count() == page.locator("tbody tr").count() > 3
    assert page.get_by_role("navigation", name="Pages").count() == 1
    assert page.get_by_role("search").count() == 1


# --- Receipts. ---


def drop(page: Any, content: bytes, name: str = "owner.nsmark.receipt") -> None:
    """Let a file fall into the box."""
    dragged = page.evaluate_handle(
        """([text, name]) => {
          const octets = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
          const dragged = new DataTransfer();
          dragged.items.add(new File([octets], name));
          return dragged;
        }""",
        [base64.b64encode(content).decode(), name],
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": dragged})
    page.dispatch_event("#drop", "drop", {"dataTransfer": dragged})


def outcome(page: Any, content: bytes) -> str:
    """Drop a file and return the word of the verdict."""
    page.evaluate("document.getElementById('summary').replaceChildren()")
    drop(page, content)
    band = page.locator("#summary .word")
    band.wait_for()
    return str(band.text_content())


def test_a_good_receipt_is_dropped(opened: OpenPage, world: World) -> None:
    page = opened("/check")
    content = world.authority.log.receipt(world.ids["admitted"]).to_json()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))

    assert outcome(page, content) == "Holds, but for the time"
    marks = page.locator("#steps .mark").all_inner_texts()
    assert marks == ["✓ holds"] * 5 + ["? not checked"]
    assert "Your browser does not check it" in page.locator("#steps").inner_text()
    facts = page.locator("#found").inner_text()
    assert "Example Lab" in facts
    assert world.ids["admitted"] in facts
    assert "not checked here" in facts
    assert "POST" not in sent  # the file stayed in the browser

    page.get_by_role("button", name="Check on the server").click()
    page.wait_for_selector("#server")
    assert "is in the log since" in page.locator("#server .sentence").inner_text()
    assert "Checked: the signature" in page.locator("#server .remark").inner_text()


def test_a_receipt_is_chosen_without_dragging(
    opened: OpenPage, world: World, tmp_path: Path
) -> None:
    page = opened("/check", PHONE)
    stops = []
    for _ in range(12):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.type"))
    assert stops.index("receipt") + 1 == stops.index("submit")
    page.get_by_label("Receipt file").set_input_files(receipt_file(world, tmp_path, "ruling"))
    page.locator("#summary .word").wait_for()
    assert "A ruling, signed by the key" in page.locator("#steps").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def tampered(good: bytes, other: bytes) -> dict[str, bytes]:
    """A receipt altered in each of its parts."""
    document = json.loads(good)

    def with_members(**changes: object) -> bytes:
        return json.dumps(document | changes).encode()

    def flipped(text: str) -> str:
        octets = bytearray(base64.b64decode(text))
        octets[5] ^= 1
        return base64.b64encode(octets).decode()

    entry = json.loads(document["entry"])
    payload = json.loads(base64.b64decode(entry["payload"]))
    payload["claim"]["owner"] = "Somebody Else"
    spoken = json.dumps(payload, separators=(",", ":"), sort_keys=True).encode()
    reworded = entry | {"payload": base64.b64encode(spoken).decode()}
    signature = entry["signatures"][0]
    resigned = entry | {"signatures": [signature | {"sig": flipped(signature["sig"])}]}
    note = document["checkpoint"].split("\n")

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    return {
        "words": with_members(entry=compact(reworded)),
        "statement's signature": with_members(entry=compact(resigned)),
        "spaces": with_members(entry=json.dumps(entry, sort_keys=True)),
        "place": with_members(index=document["index"] + 1),
        "place beyond": with_members(index=10**6),
        "half a place": with_members(index=6.5),
        "proof": with_members(proof=[flipped(document["proof"][0]), *document["proof"][1:]]),
        "shorter proof": with_members(proof=document["proof"][1:]),
        "longer proof": with_members(proof=[*document["proof"], document["proof"][0]]),
        "root": with_members(checkpoint="\n".join([*note[:2], flipped(note[2]), *note[3:]])),
        "size": with_members(checkpoint="\n".join([note[0], str(int(note[1]) + 1), *note[2:]])),
        "checkpoint's signature": with_members(
            checkpoint="\n".join([*note[:4], f"— {note[0]} {flipped(note[4].split()[2])}", ""])
        ),
        "no signature": with_members(checkpoint="\n".join(note[:3]) + "\n"),
        "other log": with_members(authority="other.example"),
        "other key": with_members(public_key=payload["public_key"]),
        "another's entry": with_members(entry=json.loads(other)["entry"]),
        "more": with_members(more=1),
        "format": with_members(format="nsmark/receipt/2"),
        "no list": with_members(proof="abc"),
        "nothing": b"{}",
        "a list": b"[]",
        "no text": b"\xff\xfe",
        "no JSON": b"receipt",
        "too large": b" " * (5 << 20),
    }


def test_tampered_receipts_are_refused_as_python_refuses_them(
    opened: OpenPage, world: World
) -> None:
    authority = world.authority
    page = opened("/check")
    good = authority.log.receipt(world.ids["admitted"]).to_json()
    other = authority.log.receipt(world.ids["successor"]).to_json()
    for name, content in tampered(good, other).items():
        with pytest.raises(NsmarkError):
            check_receipt(Receipt.parse(content), authority.public_key, authority.roots)
        assert outcome(page, content) == "Not valid", name
        assert page.locator("#steps .failed").count() == 1, name
        assert page.locator("#found > *").count() == 0, name
    assert outcome(page, good) == "Holds, but for the time"


def test_what_the_authority_signed_must_still_be_its_owners_word(
    opened: OpenPage, world: World
) -> None:
    """Proof and checkpoint are sound here: only the owner's signature is missing."""
    authority = world.authority
    receipt = authority.log.receipt(world.ids["admitted"])
    envelope = json.loads(receipt.entry)
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    forged = json.dumps(envelope, separators=(",", ":"), sort_keys=True).encode()
    signer = Identity.load(authority.settings.folder / "signing.pem")
    checkpoint = Checkpoint(origin=world.name, size=1, root=hash_leaf(forged))

    def receipt_of(entry: bytes, identity: Identity) -> Receipt:
        note = sign_checkpoint(
            replace(checkpoint, root=hash_leaf(entry)), identity, world.name
        ).to_bytes()
        return replace(receipt, entry=entry, index=0, proof=(), checkpoint=note)

    page = opened("/check")
    sound = receipt_of(receipt.entry, signer)
    check_receipt(sound, authority.public_key, authority.roots)
    assert outcome(page, sound.to_json()) == "Holds, but for the time"
    assert outcome(page, receipt_of(forged, signer).to_json()) == "Not valid"
    assert "does not fit the statement" in page.locator("#summary").inner_text()
    stranger = receipt_of(receipt.entry, world.owner(1).identity)
    assert outcome(page, stranger.to_json()) == "Not valid"
    assert "no signature of this authority" in page.locator("#summary").inner_text()
    elsewhere = replace(stranger, public_key=world.owner(1).identity.public_key)
    assert outcome(page, elsewhere.to_json()) == "Not valid"
    assert "names another authority" in page.locator("#summary").inner_text()
    spaced = json.dumps(json.loads(receipt.entry), sort_keys=True).encode()
    assert outcome(page, receipt_of(spaced, signer).to_json()) == "Not valid"
    assert "not in canonical form" in page.locator("#summary").inner_text()
    for refused in (receipt_of(forged, signer), stranger, elsewhere, receipt_of(spaced, signer)):
        with pytest.raises(NsmarkError):
            check_receipt(refused, authority.public_key, authority.roots)


def test_receipts_of_every_kind_and_place_hold(opened: OpenPage, world: World) -> None:
    log = world.authority.log
    page = opened("/check")
    kinds = set()
    for entry in log.entries():
        for size in {entry.index + 1, log.size()}:
            content = log.receipt(entry.index, size).to_json()
            assert outcome(page, content) == "Holds, but for the time", (entry.kind, size)
        kinds.add(entry.kind)
    assert len(kinds) == 9
    assert page.evaluate("window.hit") is None


def test_a_hostile_receipt_stays_text(opened: OpenPage, world: World) -> None:
    page = opened("/check", PHONE)
    outcome(page, world.authority.log.receipt(world.ids["hostile-filing"]).to_json())
    facts = page.locator("#found").inner_text()
    assert "<img src=x onerror=window.hit=1>" in facts
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def test_a_browser_without_these_signatures_decides_nothing(opened: OpenPage, world: World) -> None:
    script = """if (globalThis.SubtleCrypto) {
      SubtleCrypto.prototype.importKey = () => Promise.reject(new DOMException('no'));
    }"""
    page = opened("/check", script=script)
    content = world.authority.log.receipt(world.ids["admitted"]).to_json()

    assert outcome(page, content) == "Not decided"
    marks = page.locator("#steps .mark").all_inner_texts()
    assert marks == ["✓ holds"] * 2 + ["? not checked"] * 2 + ["✓ holds", "? not checked"]
    shifted = json.dumps(json.loads(content) | {"index": 5}).encode()
    assert outcome(page, shifted) == "Not valid"


def test_a_page_without_cryptography_sends_to_the_server(opened: OpenPage, world: World) -> None:
    page = opened(
        "/check", script="Object.defineProperty(Crypto.prototype, 'subtle', {value: undefined})"
    )
    drop(page, b"{}")
    page.get_by_text("Check on the server instead.").wait_for()


def test_receipts_are_checked_without_scripts(
    opened: OpenPage, world: World, tmp_path: Path
) -> None:
    page = opened("/check", java_script_enabled=False)
    assert not page.locator("#browser").is_visible()
    assert not page.locator("#drop-hint").is_visible()
    path = receipt_file(world, tmp_path)
    page.set_input_files("#receipt", path)
    page.get_by_role("button", name="Check on the server").click()
    assert page.locator("#server .word").inner_text().lower() == "valid"
    path.write_bytes(path.read_bytes().replace(b"Q", b"R", 1))
    page.set_input_files("#receipt", path)
    page.get_by_role("button", name="Check on the server").click()
    assert page.locator("#server .word").inner_text().lower() == "not valid"


def test_a_receipt_is_downloaded_as_it_is_kept(opened: OpenPage, world: World) -> None:
    page = opened(f"/claims/{world.ids['admitted']}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the receipt of this filing").click()
    assert download.value.suggested_filename == f"{world.ids['admitted'][:16]}.receipt"
    content = Path(download.value.path()).read_bytes()
    assert content == world.authority.log.receipt(world.ids["admitted"]).to_json()


# --- Disputes. ---


def test_progress_is_seen_as_it_happens_until_the_ruling(opened: OpenPage, world: World) -> None:
    jobs = world.authority.jobs
    dispute = world.ids["open"]
    page = opened(f"/disputes/{dispute}")
    assert page.locator("#standing").inner_text() == "Waiting for a worker."
    world.answer(2, dispute, "It is ours.", None)
    page.get_by_text("An answer was given since").wait_for()
    page.reload()
    assert page.get_by_text("It is ours.").is_visible()
    (queued,) = jobs.of_subject(dispute)
    job = jobs.claim_one(queued.job_id, "worker")
    assert job is not None

    assert jobs.heartbeat(job.job_id, "worker", 0.25, "asking the endpoint")
    page.get_by_text("asking the endpoint").wait_for()
    assert text_of(page, "#news") == ""
    assert page.locator("#standing").inner_text() == "The suspect is being measured."
    assert (page.locator("#bar").evaluate("bar => bar.value"), text_of(page, "#share")) == (
        25,
        "25 %",
    )
    assert jobs.heartbeat(job.job_id, "worker", 0.75, f"\u200f{hostile('job-message')}")
    page.get_by_text("75 %").wait_for()
    assert "[U+200F]" in text_of(page, "#message")
    assert page.locator("main img").count() == 0

    world.rule(dispute, "could_not_measure", None, verdict=None, randomness=None)
    page.locator("#ruling-sentence").wait_for()
    assert text_of(page, "#ruling-sentence").startswith("Not everything could be measured")
    assert page.locator("#progress").count() == 0
    assert page.get_by_text("It is ours.").is_visible()
    assert page.evaluate("window.hit") is None


def text_of(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def test_an_open_dispute_loads_itself_again_without_scripts(opened: OpenPage, world: World) -> None:
    page = opened(f"/disputes/{world.ids['hostile-open']}", java_script_enabled=False)
    assert page.locator("meta[http-equiv=refresh]").count() == 1
    assert page.locator("noscript p").is_visible()
    assert text_of(page, "#share") == "50 %"


def test_the_report_opens_in_a_cage(opened: OpenPage, world: World) -> None:
    page = opened(f"/disputes/{world.ids['ruled']}")
    with page.context.expect_page() as popup:
        page.get_by_role("link", name="Open the report").click()
    report = popup.value
    report.wait_for_load_state()
    assert report.get_by_text("The report.").is_visible()
    assert report.evaluate("window.origin") == "null"
    assert report.evaluate("window.opener") is None
