"""What the page at / promises, in a browser, against a server with the bundled voice."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import wave
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import voxradix

pytest.importorskip("voxradix.server", reason="the server's libraries are not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

playwright.expect.set_options(timeout=15_000)

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SIZES = {"phone": (390, 844), "narrow": (360, 640), "desktop": (1280, 800), "wide": (1440, 900)}
TEXT = "four eight one five"
LONG = ". ".join(["one two three four five six seven eight nine ten"] * 12)
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --autoplay-policy=no-user-gesture-required"
)
HEARING = """
window.starts = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (at) {
  const card = document.querySelector(".card");
  starts.push({at, seconds: this.buffer.duration, rate: this.context.sampleRate, state: card?.dataset.state});
  return start.apply(this, arguments);
};
"""
"""Notes every piece of sound that is to be heard, and how far the take was."""


class Serving:
    """A server process, and what it answers."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        root = str(Path(voxradix.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "voxradix", "serve", "--port", "0", *arguments],
            env=os.environ | {"PYTHONPATH": root} | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the server said {line!r}"
        self.url = found[0]

    def get(self, path: str, method: str = "GET") -> Any:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens the page; in the end nothing has left its origin, and the browser has found nothing to complain about."""
    contexts, foreign, complaints = [], [], []

    def look(url: str, size: str = "desktop", **options: Any) -> Page:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.add_init_script(HEARING)
        page = context.new_page()
        page.set_default_timeout(15_000)
        own = urlsplit(url).netloc
        page.on("request", lambda r: foreign.append(r.url) if urlsplit(r.url).netloc not in (own, "") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.goto(url)
        playwright.expect(page.locator("#voice:not(:empty), #status.error")).to_have_count(1)
        return page

    yield look
    for context in contexts:
        context.close()
    assert not foreign
    refused = "Failed to load resource"  # the browser's own line for an answer that is no 2xx
    assert [line for line in complaints if not line.startswith(refused)] == []


def say(page: Page, text: str, takes: int = 1) -> None:
    """Type a text, send it, and wait for so many takes on the page."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    finished(page, takes)


def finished(page: Page, takes: int) -> None:
    playwright.expect(page.locator(".card[data-state=done]")).to_have_count(takes)


def strip(page: Page, take: int) -> Locator:
    return page.get_by_role("slider", name=f"Frames of take {take}")


def frames(page: Page, take: int) -> int:
    return int(strip(page, take).get_attribute("aria-valuemax") or 0)


def column(page: Page, take: int, frame: int) -> tuple[float, float]:
    """The middle of a column, on the screen."""
    strip(page, take).scroll_into_view_if_needed()
    box = strip(page, take).bounding_box()
    assert box is not None
    width = page.evaluate("document.querySelector('.run').dataset.column")
    return box["x"] + (frame + 0.5) * float(width), box["y"] + box["height"] / 2


def made(page: Page) -> list[str]:
    """The ids of the takes whose making was told by the server from now on, in their order."""
    ids: list[str] = []

    def note(response: Any) -> None:
        if response.url.endswith("/v1/audio/speech"):
            ids.extend(response.headers.get("x-voxradix-take", "").split(","))

    page.on("response", note)
    return ids


def test_a_text_is_heard_while_it_is_made_and_drawn_frame_by_frame(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    broken: list[str] = []
    page.on("requestfailed", lambda request: broken.append(request.url))
    say(page, "one two three four five six seven eight nine")
    take = server.get(f"/v1/takes/{ids[0]}")
    playwright.expect(strip(page, 1)).to_have_attribute("aria-valuemax", str(take["frames"]))
    playwright.expect(page.get_by_role("status")).to_contain_text(
        f"{take['frames']} frames: {take['frames']} generated"
    )
    starts = page.evaluate("starts")
    assert starts[0]["state"] == "speaking"  # heard before it was whole
    assert sum(piece["seconds"] for piece in starts) == pytest.approx(take["seconds"])
    for before, after in pairwise(starts):
        gap = after["at"] - before["at"] - before["seconds"]
        assert abs(gap) < 0.5 / before["rate"] or gap > 0.05  # no seam; only a busy machine lets it run dry
    say(page, "four", takes=2)
    assert not broken  # each reply was read to its end


def test_a_click_in_the_strip_takes_it_again_from_there(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    say(page, TEXT)
    x, y = column(page, 1, 7)
    page.mouse.move(x, y)
    playwright.expect(page.locator("#take-1 .told")).to_contain_text(f"0.56 s, frame 8 of {frames(page, 1)}")
    page.mouse.click(x, y)
    finished(page, 2)
    first, second = (server.get(f"/v1/takes/{each}") for each in ids)
    assert second["kept_frames"] == 7
    assert second["codes"][:7] == first["codes"][:7]
    assert second["seed"] != first["seed"]
    assert page.locator(".card h4").all_inner_texts() == ["Take 1", "Take 2"]
    told = page.locator("#take-2")
    playwright.expect(told).to_contain_text("from take 1 at 0.56 s")
    playwright.expect(told).to_contain_text(f"6 found, 1 kept, {second['frames'] - 7} generated")
    assert strip(page, 1).bounding_box()["x"] == strip(page, 2).bounding_box()["x"]  # type: ignore[index]


def test_the_keyboard_alone_does_the_same(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type(TEXT)
    page.keyboard.press("Enter")
    finished(page, 1)
    for _ in range(40):
        if page.evaluate("document.activeElement.getAttribute('role')") == "slider":
            break
        page.keyboard.press("Tab")
    text = strip(page, 1)
    count = frames(page, 1)
    for keys, place in (("End", count), ("Home", 1), ("Shift+ArrowRight", 14), ("ArrowLeft ArrowLeft", 12)):
        for key in keys.split():
            page.keyboard.press(key)
        playwright.expect(text).to_have_attribute("aria-valuenow", str(place))
    playwright.expect(text).to_have_attribute("aria-valuetext", f"0.88 s, frame 12 of {count}, generated")
    page.keyboard.press("Enter")
    finished(page, 2)
    assert server.get(f"/v1/takes/{ids[1]}")["kept_frames"] == 11
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Frames of take 1"


def test_takes_of_one_text_stand_together_and_go_on(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    page.click("summary")
    page.fill("#takes", "3")
    say(page, "six six", takes=3)
    assert [server.get(f"/v1/takes/{each}")["seed"] for each in ids] == [0, 1, 2]
    page.fill("#takes", "1")
    page.get_by_role("button", name="Go on from take 1").click()
    page.keyboard.type("nine")
    page.keyboard.press("Enter")
    finished(page, 4)
    assert page.locator(".card h4").all_inner_texts() == ["Take 1", "Take 4", "Take 2", "Take 3"]
    assert server.get(f"/v1/takes/{ids[3]}")["text"] == "six six nine"
    with page.expect_download() as download:
        page.get_by_role("button", name="Download take 4").click()
    assert Path(download.value.path()).stat().st_size == 44 + 2 * 1920 * frames(page, 4)
    page.get_by_role("button", name="Forget take 4").click()
    playwright.expect(page.locator(".card")).to_have_count(3)
    with pytest.raises(urllib.error.HTTPError):
        server.get(f"/v1/takes/{ids[3]}")


def test_nothing_overlaps_or_makes_the_page_wider_than_the_screen(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    page.click("summary")
    say(page, LONG[:60])
    page.mouse.click(*column(page, 1, 3))
    finished(page, 2)
    page.keyboard.press("Escape")  # while it sounds, a bar lies over the page
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == [], width
        assert page.evaluate(CUT) == [], width


OVERLAPS = """
() => {
  const texts = [...document.querySelectorAll("h1,h2,h3,h4,p,label,dt,dd,li,button,summary,input")]
    .filter((each) => each.checkVisibility() && !each.matches(".hidden, .told, .cost"));
  const boxes = texts.map((each) => [each, each.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  const found = [];
  boxes.forEach(([one, a], i) => {
    for (const [other, b] of boxes.slice(i + 1)) {
      if (one.contains(other) || other.contains(one)) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 1) found.push(`${one.textContent || one.id} / ${other.textContent || other.id}`);
    }
  });
  return found;
}
"""
CUT = """
() => [...document.querySelectorAll("input[placeholder]")].filter((each) => each.checkVisibility()).filter((each) => {
  const style = getComputedStyle(each), pen = document.createElement("canvas").getContext("2d");
  pen.font = `italic ${style.fontSize} ${style.fontFamily}`;
  const spinner = each.type === "number" ? 18 : 0;
  const room = each.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - spinner;
  return pen.measureText(each.placeholder).width > room;
}).map((each) => each.id)
"""
"""The fields whose placeholder is wider than their room."""


def test_stop_ends_it_at_the_server_and_keeps_what_came(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    page.fill("#text", LONG)
    page.press("#text", "Enter")
    page.wait_for_selector(".card[data-state=speaking]")
    page.get_by_role("button", name="Stop", exact=True).click()
    playwright.expect(page.locator(".card[data-state=stopped]")).to_have_count(1)
    until(lambda: server.get("/v1/stats")["running"] == 0)
    assert server.get("/v1/stats")["rows"]["held"] == 0
    assert 0 < frames(page, 1) < 500
    page.get_by_role("button", name="Play take 1").click()
    playwright.expect(page.get_by_role("button", name="Stop take 1")).to_be_visible()
    page.get_by_role("button", name="Stop take 1").click()
    playwright.expect(page.get_by_role("button", name="Play take 1")).to_be_visible()


def test_what_the_server_refuses_is_told_in_its_words(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    say(page, TEXT)
    server.get(f"/v1/takes/{ids[0]}", "DELETE")
    page.mouse.click(*column(page, 1, 2))
    playwright.expect(page.get_by_role("status")).to_have_text(re.compile(rf"^There is no take '{ids[0]}'.*\.$"))
    playwright.expect(page.locator("#take-1")).to_contain_text("has forgotten this take")
    page.fill("#text", " ")
    page.press("#text", "Enter")
    playwright.expect(page.get_by_role("status")).to_contain_text("nothing to say")


def test_a_key_is_asked_for_and_retractions_are_seen(visit: Callable[..., Page]) -> None:
    serving = Serving("--max-rows", "64", VOXRADIX_API_KEY="a-key-of-the-test")
    try:
        page = visit(serving.url)
        playwright.expect(page.get_by_role("status")).to_contain_text("asks for an API key")
        assert page.evaluate("document.activeElement.id") == "key"
        asked: list[str] = []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        page.keyboard.type("a-wrong-key")
        page.keyboard.press("Enter")
        playwright.expect(page.get_by_role("status")).to_contain_text("does not know this API key")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # at other times it asks then
        page.wait_for_timeout(500)
        assert asked == ["/v1/audio/voices"]
        page.fill("#key", "a-key-of-the-test")
        page.keyboard.press("Tab")
        playwright.expect(page.locator("#voice")).to_contain_text("numbers")
        page.fill("#frames", "40")
        page.fill("#takes", "3")
        say(page, TEXT, takes=3)
        playwright.expect(page.locator(".cost").filter(has_text="recomputed").first).to_be_visible()
    finally:
        serving.stop()


def test_a_server_that_goes_away_is_told_and_what_came_stays(visit: Callable[..., Page]) -> None:
    serving = Serving()
    try:
        page = visit(serving.url)
        page.fill("#text", LONG)
        page.press("#text", "Enter")
        download = page.get_by_role("button", name="Download take 1")
        playwright.expect(download).to_have_attribute("aria-disabled", "false")  # some sound has come
        serving.stop()
        playwright.expect(page.locator(".card[data-state=failed]")).to_have_count(1)
        playwright.expect(page.get_by_role("status")).to_contain_text("broke off")
        assert frames(page, 1) > 0
        playwright.expect(download).to_have_attribute("aria-disabled", "false")
        page.get_by_role("button", name="Speak").click()
        playwright.expect(page.get_by_role("status")).to_contain_text("does not answer")
        playwright.expect(page.locator("#metrics")).to_contain_text("does not answer")
    finally:
        serving.stop()


def test_a_take_of_4096_frames_is_drawn_where_it_is_seen_and_followed(
    server: Serving, visit: Callable[..., Page]
) -> None:
    page = visit(server.url)
    page.route("**/v1/audio/speech", lambda route: route.fulfill(content_type="text/event-stream", body=long_take()))
    say(page, TEXT)
    assert frames(page, 1) == 4096
    assert page.evaluate("document.querySelector('canvas').width") < 1400
    place = "(({scrollLeft, clientWidth, scrollWidth}) => scrollLeft + clientWidth >= scrollWidth - 2)"
    assert page.evaluate(f"{place}(document.querySelector('.strip'))")
    page.evaluate("document.querySelector('.strip').scrollLeft = 0")
    slowest = page.evaluate(
        """async () => {
          const strip = document.querySelector(".strip");
          let slowest = 0;
          for (let i = 0; i < 30; i++) {
            await new Promise(requestAnimationFrame);
            const from = performance.now();
            strip.scrollLeft += 500;
            await new Promise(requestAnimationFrame);
            slowest = Math.max(slowest, performance.now() - from);
          }
          return slowest;
        }"""
    )
    assert slowest < 500  # milliseconds; a machine at rest needs 20


def long_take() -> str:
    begin = {
        "type": "voxradix.begin", "take": "take_" + "0" * 32, "seed": 1, "texts": [TEXT], "kept_frames": 0,
        "prompt_rows": 13, "reused_prompt_rows": 0, "reused_generated_rows": 0, "first_frame_ms": 1.0,
        "sample_rate": 24000, "channels": 1, "frame_rate": 12.5, "samples_per_frame": 1920,
    }  # fmt: skip
    events: list[dict[str, Any]] = [begin]
    for first in range(4096):
        codes = [(first * 37 + row * 11) % 256 for row in range(12)]
        events.append({"type": "voxradix.frames", "how": "made", "first": first, "count": 1, "codes": [codes]})
    events.append({"type": "speech.audio.done", "take": begin["take"], "usage": {}})
    return "".join(f"data: {json.dumps(event | {'index': 0})}\n\n" for event in events)


def test_every_control_has_a_name_and_the_page_has_an_order(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url, reduced_motion="reduce")
    page.click("summary")
    say(page, TEXT)
    for role in ("banner", "main", "complementary", "form"):
        playwright.expect(page.locator(f"role={role}")).to_have_count(1)
    playwright.expect(page.get_by_role("heading", level=1)).to_have_count(1)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((each) => Number(each.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise([0, *levels]))
    for role in ("button", "textbox", "spinbutton", "slider", "article", "region", "img"):
        every = page.locator(f"role={role}")
        assert every.count() == page.locator(rf"role={role}[name=/\w/]").count(), role
    assert page.evaluate("[...document.querySelectorAll('input,textarea')].every((each) => each.labels.length === 1)")
    assert page.evaluate("[...document.querySelectorAll('canvas')].every((each) => each.ariaHidden === 'true')")
    assert page.evaluate("document.documentElement.lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))


def test_sound_that_comes_in_any_pieces_is_whole_in_two_channels(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    samples = struct.pack("<10h", *range(-5, 5))
    pieces = [b64encode(samples[at:end]).decode() for at, end in ((0, 6), (6, 8), (8, 20))]
    lengths, wav = page.evaluate(
        """async (pieces) => {
          const { Sound } = await import("/page/sound.js");
          const sound = new Sound(8000, 2);
          const lengths = pieces.map((piece) => sound.push(piece).length);
          return [lengths, [...new Uint8Array(await sound.wav().arrayBuffer())]];
        }""",
        pieces,
    )
    assert lengths == [2, 2, 6]
    with wave.open(io.BytesIO(bytes(wav))) as file:
        assert (file.getnchannels(), file.getframerate(), file.readframes(10)) == (2, 8000, samples)


BOX = "document.querySelector('.strip').scrollLeft"


def in_view(page: Page) -> bool:
    """Whether the place that is heard is on the strip's part that is seen."""
    place, box = page.locator(".needle").bounding_box(), page.locator(".strip").bounding_box()
    return bool(place and box and box["x"] - 2 <= place["x"] <= box["x"] + box["width"])


def test_the_strip_goes_with_what_is_heard_until_the_reader_looks_elsewhere(
    server: Serving, visit: Callable[..., Page]
) -> None:
    page = visit(server.url, "narrow")
    page.fill("#text", LONG)
    page.press("#text", "Enter")
    until(lambda: page.locator(".strip").count() and frames(page, 1) > 120)
    assert in_view(page)
    until(lambda: page.evaluate(BOX) > 100)  # it has turned the page
    assert in_view(page)
    page.evaluate(f"{BOX} = 20")
    page.wait_for_timeout(700)
    assert page.evaluate(BOX) == 20
    page.keyboard.press("Escape")
    told = re.compile(r"^Stopped\. Take 1 (was made to|is) [\d.]+ s( long)? and (was )?heard to [3-9][\d.]+ s\.$")
    playwright.expect(page.get_by_role("status")).to_have_text(told)


def test_while_nothing_sounds_it_goes_with_the_newest_frame_until_the_reader_looks_elsewhere(
    server: Serving, visit: Callable[..., Page]
) -> None:
    page = visit(server.url, "narrow")
    page.fill("#text", LONG)
    page.press("#text", "Enter")
    page.get_by_role("button", name="Stop take 1").click()
    playwright.expect(page.get_by_role("status")).to_contain_text("1 take is being made")
    until(lambda: page.evaluate(BOX) > 100)
    page.evaluate(f"{BOX} = 20")
    before = frames(page, 1)
    until(lambda: frames(page, 1) > before + 20)
    assert page.evaluate(BOX) == 20
    page.keyboard.press("Escape")
    playwright.expect(page.locator(".card[data-state=stopped]")).to_have_count(1)


@pytest.mark.parametrize("size", ["phone", "desktop"])
def test_the_page_stays_with_the_take_that_sounds(size: str, server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url, size)
    page.click("summary")
    page.fill("#takes", "8")
    page.fill("#text", LONG)
    page.press("#text", "Enter")
    playwright.expect(page.locator(".card[data-state=speaking]")).to_have_count(8)
    playwright.expect(page.get_by_role("status")).to_have_text("Speaking take 1. 8 takes are being made.")
    playwright.expect(page.get_by_role("button", name=re.compile("^Stop take"))).to_have_count(1)
    playwright.expect(page.get_by_role("button", name="Stop take 1")).to_be_visible()
    page.wait_for_timeout(600)  # the page moves smoothly
    for seen in ("#take-1 h4", "#take-1 .buttons", "#stop", "#status"):
        playwright.expect(page.locator(seen)).to_be_in_viewport(ratio=0.9)
    page.get_by_role("button", name="Play take 2").click()  # goes over to that one, as far as it has come and on
    playwright.expect(page.get_by_role("status")).to_have_text("Speaking take 2. 8 takes are being made.")
    playwright.expect(page.get_by_role("button", name=re.compile("^Stop take"))).to_have_count(1)
    page.get_by_role("button", name="Stop take 2").click()
    playwright.expect(page.get_by_role("button", name=re.compile("^Stop take"))).to_have_count(0)
    assert page.locator(".card[data-state=speaking]").count() == 8  # only the sound has stopped
    page.locator("#families").evaluate("(all) => all.lastElementChild.lastElementChild.scrollIntoView()")
    playwright.expect(page.locator("#stop")).to_be_in_viewport(ratio=0.9)
    page.get_by_role("button", name="Stop", exact=True).click()
    playwright.expect(page.locator(".card[data-state=stopped]")).to_have_count(8)
    playwright.expect(page.get_by_role("status")).to_contain_text("0 of 8 takes are whole. Take 1 was made to")


def test_seeds_of_64_bits_are_sent_and_shown_exactly(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    page.click("summary")
    seeds = [2**53 + 1, 2**63 - 2, -(2**63)]
    for number, seed in enumerate(seeds, start=1):
        page.fill("#seed", str(seed))
        say(page, "six", takes=number)
        playwright.expect(page.locator(f"#take-{number} .meta")).to_contain_text(f"seed {seed} ·")
    assert [server.get(f"/v1/takes/{each}")["seed"] for each in ids] == seeds
    page.fill("#seed", "")
    say(page, "six", takes=4)
    say(page, "six", takes=5)
    assert [server.get(f"/v1/takes/{each}")["seed"] for each in ids[3:]] == [2**63 - 1, 0]  # the next unused
    page.fill("#text", "seven")
    for _ in range(2):  # at once: the second before the first has begun
        page.press("#text", "Enter")
    finished(page, 7)
    assert sorted(server.get(f"/v1/takes/{each}")["seed"] for each in ids[5:]) == [0, 1]
    for text, takes, words in (
        (str(2**63), "1", f"Seed: It must be from {-(2**63)} to {2**63 - 1}."),
        ("1.5", "1", "Seed: It must be a whole number"),
        ("1e3", "1", "Seed: It must be a whole number"),
        (str(2**63 - 2), "3", "Seed: It is too large for 3 takes"),
    ):
        page.fill("#seed", text)
        page.fill("#takes", takes)
        page.press("#text", "Enter")
        playwright.expect(page.get_by_role("status")).to_contain_text(words)
    assert len(ids) == 7


def test_a_click_in_the_strip_takes_the_options(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    asked: list[dict[str, Any]] = []

    def note(request: Any) -> None:
        if request.method == "POST":
            asked.append(request.post_data_json)

    page.on("request", note)
    page.click("summary")
    say(page, TEXT)
    page.fill("#takes", "3")
    page.fill("#temperature", "0.5")
    page.fill("#frames", "4")
    page.mouse.click(*column(page, 1, 7))
    finished(page, 4)
    wanted = {"at_frames": 7, "n": 3, "temperature": 0.5, "max_frames": 4, "seed": 1}
    assert {name: asked[1][name] for name in wanted} == wanted
    playwright.expect(page.get_by_role("status")).to_contain_text("3 takes are made.")
    playwright.expect(page.get_by_role("status")).to_contain_text("its frames were spent")
    page.fill("#takes", "1")
    page.fill("#seed", "77")
    page.mouse.click(*column(page, 1, 7))
    finished(page, 5)
    assert asked[2]["seed"] == 77
    page.fill("#temperature", "-1")
    page.mouse.click(*column(page, 1, 7))
    playwright.expect(page.get_by_role("status")).to_contain_text("Temperature: ")
    assert len(asked) == 3


def test_going_on_asks_for_words_and_can_be_left(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    ids = made(page)
    say(page, TEXT)
    page.keyboard.press("Escape")
    page.fill("#text", "a draft")
    page.get_by_role("button", name="Go on from take 1").click()
    text = page.locator("#text")
    playwright.expect(text).to_have_attribute("placeholder", "what comes next")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("status")).to_contain_text("Write what take 1 is to go on with, or press Escape")
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#text-label")).to_have_text("Say")
    playwright.expect(text).to_have_value("a draft")
    assert len(ids) == 1
    page.click("summary")
    page.fill("#frames", "5")
    say(page, "one two three", takes=2)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Go on from take 2").click()
    page.keyboard.press("Enter")  # there is text that take 2 has not said
    finished(page, 3)
    assert server.get(f"/v1/takes/{ids[2]}")["text"] == "one two three"


def test_a_branch_of_a_forgotten_take_says_so(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url)
    say(page, "one zebra")
    playwright.expect(page.get_by_role("status")).to_contain_text("does not know zebra and spells it")
    page.mouse.click(*column(page, 1, 3))
    finished(page, 2)
    page.get_by_role("button", name="Forget take 1").click()
    playwright.expect(page.locator("#take-2 .meta")).to_contain_text("from a forgotten take at 0.24 s")


def test_a_finger_is_told_to_tap_and_no_keyboard_opens(server: Serving, visit: Callable[..., Page]) -> None:
    page = visit(server.url, "phone", has_touch=True, is_mobile=True)
    assert page.evaluate("document.activeElement === document.body")
    assert "Tap a column" in page.inner_text("#empty").replace("\n", " ")
    page.fill("#text", TEXT)
    page.get_by_role("button", name="Speak").tap()
    finished(page, 1)
    strip(page, 1).focus()
    page.keyboard.press("End")
    playwright.expect(page.locator("#take-1 .told")).to_contain_text("tap: again from here")


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
