"""The page in a real browser: its script runs without a word on the console, and nothing is loaded."""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from report_examples import example_outcome

from onnxq.report import CaseOutcome, CheckOutcome, ReportHeader
from onnxq.report.page import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

HEADER = ReportHeader(("corpus",), ("good 1.0", "bad 1.0"), "2026-01-01")

Scheme = Literal["light", "dark"]


def outcomes() -> list[CaseOutcome]:
    broken = CaseOutcome("weak/broken", "broken", checks=(CheckOutcome("case-is-readable", "error", "no title"),))
    return [
        example_outcome("residual/one"),
        example_outcome("residual/one", "bad", fails=True),
        example_outcome("residual/two"),
        example_outcome("residual/two", "bad"),
        broken,
    ]


@dataclass
class Browser:
    """Chromium without a window and with a new profile for each page."""

    folder: Path

    def run(self, page: str, *arguments: str, fragment: str = "") -> tuple[str, list[str]]:
        """Load a page.

        Returns:
            What was printed, and the lines on the console.
        """
        file = self.folder / "page.html"
        file.write_text(page, encoding="utf-8")
        profile = self.folder / f"profile{len(list(self.folder.iterdir()))}"
        command = [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=4000"),
            f"--user-data-dir={profile}",
            *arguments,
            f"{file.as_uri()}{fragment}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]

    def dom(self, page: str, fragment: str = "") -> tuple[str, list[str]]:
        """The page as it is after its script ran, and the lines on the console."""
        return self.run(page, "--dump-dom", fragment=fragment)

    def screenshot(self, page: str, scheme: Scheme, width: int) -> Screenshot:
        """What the page looks like."""
        file = self.folder / f"{scheme}{width}.png"
        color = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
        _, console = self.run(page, f"--screenshot={file}", f"--window-size={width},900", color)
        assert console == []
        return read_png(file.read_bytes())


@dataclass(frozen=True)
class Screenshot:
    """A picture: its first pixel, and how many different lines it has, as they are coded."""

    first_pixel: tuple[int, ...]
    lines: int


def read_png(data: bytes) -> Screenshot:
    """Read a PNG of 8 bit RGB or RGBA. The filter of a line leaves its first pixel as it is in the first line only."""
    width, height, depth, color = struct.unpack(">IIBB", data[16:26])
    assert (depth, color) in ((8, 2), (8, 6))
    position, packed = 8, b""
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            packed += data[position + 8 : position + 8 + length]
        position += length + 12
    raw, stride = zlib.decompress(packed), 1 + width * (3 if color == 2 else 4)
    return Screenshot(tuple(raw[1:4]), len({raw[n * stride + 1 : (n + 1) * stride] for n in range(height)}))


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@dataclass
class Server:
    """Notes what is asked of it."""

    port: int
    asked: list[str]


@pytest.fixture
def server() -> Iterator[Server]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield Server(http.server_address[1], asked)
        http.shutdown()
        thread.join()


def test_the_script_runs_and_opens_the_case_of_the_address(browser: Browser) -> None:
    dom, console = browser.dom(render(outcomes(), header=HEADER), "#case-2")
    assert console == []
    assert "3 of 3 cases shown" in dom
    opened = [part.partition('"')[0] for part in dom.split('id="case-')[1:] if 'open=""' in part.partition(">")[0]]
    assert opened == ["2"]


@pytest.mark.parametrize(
    ("act", "shown"),
    [
        ('text.value = "residual TWO"; text.dispatchEvent(new Event("input"));', ["2"]),
        ('text.value = "quantized-add"; text.dispatchEvent(new Event("input"));', ["1"]),
        ('for (const b of boxes) if (b.value !== "failed") b.click();', ["1"]),
        ('for (const b of boxes) if (b.value === "passed") b.click();', ["1", "3"]),
    ],
)
def test_cases_are_filtered_by_text_and_outcome(browser: Browser, act: str, shown: list[str]) -> None:
    page = render(outcomes(), header=HEADER).replace("Content-Security-Policy", "X-None")
    driver = f'const text = document.getElementById("text"), boxes = document.querySelectorAll(".choices input"); {act}'
    dom, console = browser.dom(page.replace("</body>", f"<script>{driver}</script></body>"))
    assert console == []
    parts = [part.partition(">")[0] for part in dom.split('id="case-')[1:]]
    assert [part.partition('"')[0] for part in parts if 'hidden=""' not in part] == shown
    assert f"{len(shown)} of 3 cases shown" in dom


@pytest.mark.parametrize("width", [1300, 500])
def test_it_is_drawn_in_light_and_dark(browser: Browser, width: int) -> None:
    page = render(outcomes(), header=HEADER).replace('<details class="case', '<details open class="case')
    light, dark = browser.screenshot(page, "light", width), browser.screenshot(page, "dark", width)
    assert min(light.first_pixel) > 220
    assert max(dark.first_pixel) < 40
    assert min(light.lines, dark.lines) > 200


@pytest.mark.parametrize("width", ["20rem", "80rem"])
def test_no_word_of_the_legend_is_cut_off(browser: Browser, width: str) -> None:
    page = render(outcomes(), header=HEADER).replace("Content-Security-Policy", "X-None")
    driver = f"""
        document.querySelector(".legend").style.width = "{width}";
        const entries = [...document.querySelectorAll(".legend li")];
        document.title = entries.length + " " + entries.every((e) => e.scrollWidth <= e.clientWidth);
    """
    dom, console = browser.dom(page.replace("</body>", f"<script>{driver}</script></body>"))
    assert console == []
    assert "<title>6 true</title>" in dom


def test_names_that_look_like_markup_load_and_run_nothing(browser: Browser, server: Server) -> None:
    attack = (
        f"</script></style></title></svg><img src=http://127.0.0.1:{server.port}/image "
        "onerror=\"document.title='run'\">"
        f"<script>document.title='run'; fetch('http://127.0.0.1:{server.port}/fetch')</script>"
    )
    browser.dom(f"<!DOCTYPE html>{attack}")
    assert "/image" in server.asked  # else this test could not fail
    server.asked.clear()
    evil = example_outcome(attack, fails=True, skip=attack, trunk=f"x{attack}", node=attack)
    evil = replace(evil, title=attack, noise={attack: 1.0}, checks=(CheckOutcome(attack, "failed", attack),))
    dom, console = browser.dom(render([evil], header=ReportHeader((attack,), (attack,), attack)))
    assert console == []
    assert server.asked == []
    assert "<title>onnxq report</title>" in dom


def test_a_page_without_its_own_escaping_is_still_stopped_by_its_policy(browser: Browser) -> None:
    page = render(outcomes(), header=HEADER)
    dom, console = browser.dom(page.replace("</header>", "<script>document.title = 'run'</script></header>"))
    assert any("Content Security Policy" in line for line in console)
    assert "<title>onnxq report</title>" in dom
