"""Pages as they should be, and pages as they should not: each is read, or refused in time with one sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rollout_tasks.environments.base import TextTooLong
from rollout_tasks.environments.web import passages
from tests.hostile.random_replies.answers import HEADS, Answer
from tests.integration.environments.web.conftest import HostileSite, Opened
from tests.integration.environments.web.hostile_site import to

pytestmark = pytest.mark.usefixtures("cells")


class Reader:
    """A model that says what it was given."""

    def __init__(self, longest: int = 1_000_000, reply: str | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self._longest, self._reply = longest, reply

    def answer(self, instruction: str, text: str) -> str:
        self.asked.append((instruction, text))
        if len(text) > self._longest:
            raise TextTooLong("too long")
        return f"a summary of {len(text)} characters" if self._reply is None else self._reply


def test_a_page_is_summed_up_toward_the_goal(web: Opened, site: HostileSite) -> None:
    model = Reader(reply="It was founded by Ida Marsh.")

    said = web(model).visit(f"{site.url}/museum", goal="who  founded\nit")

    assert said.status == "success"
    assert said.response.splitlines()[0].startswith(f"{site.url}/museum (The Tide Museum), ")
    assert said.response.splitlines()[1:] == ["It was founded by Ida Marsh."]
    [(instruction, text)] = model.asked
    assert instruction.startswith("You read a page for an agent.")
    assert text.startswith("Goal:\nwho founded it\n\nPage:\n")
    assert "founded in 1887 by Ida Marsh" in text
    assert f"[the harbour]({site.url}/harbour)" in text
    assert "| Adults | 12 euros |" in text


def test_without_a_model_the_text_itself_is_shown(web: Opened, site: HostileSite) -> None:
    assert "founded in 1887 by Ida Marsh" in web().visit(f"{site.url}/museum").response


READ = {
    "plain": "The ferry leaves at 07:40.\nIt returns at 19:15.",
    "pdf": "The report counts 4217 seals.",
    "pdf-as-html": "The report counts 4217 seals.",
    "html-as-binary": "founded in 1887",
    "latin": "Café in Malmö",
    "no-charset": "Café in Malmö",
    "odd-charset": "Café in Malmö",
    "declared": "港の時計",
    "to//museum": "founded in 1887",
    "bidi": "safe \N{REPLACEMENT CHARACTER}txt.exe",
}


@pytest.mark.parametrize("page", READ)
def test_what_can_be_read_is_read(page: str, web: Opened, site: HostileSite) -> None:
    said = web().visit(f"{site.url}/{page}")

    assert said.status == "success", said
    assert READ[page] in said.response
    assert "\x1b" not in said.response


REFUSED = {
    "huge": "it is larger than 32 MiB",
    "endless": "it is larger than 32 MiB",
    "slow": "it did not come within 1.5 s",
    "slow-head": "it did not come within 1.5 s",
    "interim": "it did not come within 1.5 s",
    "silent": "it did not come within 1.5 s",
    "loop": "its server answers with more than 10 redirects",
    "packed/gzip": "it is packed as 'gzip', which was not asked for",
    "packed/deflate": "it is packed as 'deflate', which was not asked for",
    "packed/br": "it is packed as 'br', which was not asked for",
    "bomb-inside": "it is not text, although it is said to be text/html",
    "picture": "it is image/png, which has no text",
    "binary-as-html": "it is not text, although it is said to be text/html",
    "archive": "it is application/zip, which has no text",
    "empty": "it has no text",
    "scripts-only": "it has no text, at least not without running its scripts",
    "missing": "its server answers HTTP 404 Said",
    "broken": "its server answers HTTP 503 Said",
    "pdf-broken": "it is a PDF file that is broken",
    "to/file:///etc/passwd": "it leads to an address that is neither http nor https",
    "to/http://[::1": "its server cannot be asked: ",
    "to-password": "it leads to an address with a user or password in it",
    "to-long": "it leads to an address of more than 2,000 characters",
    "to-long-letters": "it leads to an address of more than 2,000 characters",
    "private/diary": "the robots.txt of 127.0.0.1 asks programs not to read it",
    "plain/a.secret": "the robots.txt of 127.0.0.1 asks programs not to read it",
    "to//private/diary": "the robots.txt of 127.0.0.1 asks programs not to read it",
}
SECONDS = {"slow": 1.5, "slow-head": 1.5, "interim": 1.5, "silent": 1.5}


@pytest.mark.parametrize("page", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_sentence(page: str, web: Opened, site: HostileSite) -> None:
    environment = web(visit_seconds=SECONDS.get(page, 60))
    began = time.monotonic()

    said = environment.visit(f"{site.url}/{page}")

    assert time.monotonic() - began < 55
    assert (said.status, "\n" in said.response) == ("failed", False)
    assert said.response.startswith(f"Page '{site.url}/{page}': {REFUSED[page]}")
    assert said.response.endswith(".")
    if page in SECONDS:
        environment = web(visit_seconds=60)  # another page may take as long as this machine needs
    assert environment.visit(f"{site.url}/plain").status == "success"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["pdf-explodes", "deep", "many"])
def test_pages_that_explode_are_cut_by_the_cell(page: str, web: Opened, site: HostileSite) -> None:
    environment = web(visit_seconds=20)

    said = environment.visit(f"{site.url}/{page}")

    assert said.status == "success" or said.response.endswith(
        ("reading it takes more time or memory than a page may.", "at least not without running its scripts.")
    ), said
    assert environment.visit(f"{site.url}/plain").status == "success"


@pytest.mark.parametrize("number", range(len(HEADS)))
def test_whatever_a_server_sends_is_one_sentence(number: int, web: Opened, site: HostileSite) -> None:
    site.robots = lambda: Answer(b"", status=404)

    said = web(visit_seconds=5).visit(f"{site.url}/head/{number}")

    assert (said.status, "\n" in said.response) == ("failed", False)


@pytest.mark.parametrize("page", ["to-password", "to-long", "to-long-letters"])
def test_an_address_that_is_not_visited_is_not_asked(page: str, web: Opened, site: HostileSite) -> None:
    web().visit(f"{site.url}/{page}")

    assert site.asked == ["/robots.txt", f"/{page}"]


def test_an_address_that_is_too_long_to_be_sent_is_refused(web: Opened, site: HostileSite) -> None:
    said = web().visit(f"{site.url}/" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 1_000).response

    assert said.endswith("its address has more than 2,000 characters.")
    assert site.asked == []


def test_rules_that_lead_to_a_password_are_none(web: Opened, site: HostileSite) -> None:
    site.robots = lambda: to("//ann:secret@127.0.0.1/robots.txt")

    said = web().visit(f"{site.url}/plain").response

    assert said.endswith("cannot be had: it leads to an address with a user or password in it.")
    assert "secret" not in said


def test_of_several_pages_those_that_can_be_read_are(web: Opened, site: HostileSite) -> None:
    said = web().visit(f"{site.url}/missing", f"{site.url}/plain", "ftp://127.0.0.1/", "http://[", " ")

    assert said.status == "success"
    assert "The ferry leaves at 07:40." in said.response
    assert "Page 'ftp://127.0.0.1/': only http and https addresses can be visited." in said.response
    assert "Page 'http://[': it is not the address of a page." in said.response


def test_a_page_is_asked_for_once_and_its_site_for_its_rules_once(web: Opened, site: HostileSite) -> None:
    environment = web(user_agent="Reader/1.0 (about us)")

    for _ in range(2):
        environment.visit(f"{site.url}/plain#part", f"{site.url}/museum")

    assert site.asked == ["/robots.txt", "/plain", "/museum"]
    assert site.agents == {"Reader/1.0 (about us)"}


ROBOTS = {
    "none": (lambda: Answer(b"", status=404), "success"),
    "broken": (lambda: Answer(b"", status=500), "failed"),
    "too many": (lambda: Answer(b"", status=429), "failed"),
    "all closed": (lambda: Answer(b"User-agent: *\nDisallow: /", "text/plain"), "failed"),
    "closed for another": (lambda: Answer(b"User-agent: other\nDisallow: /", "text/plain"), "success"),
    "closed for us": (lambda: Answer(b"User-agent: computer-use-rollouts\nDisallow: /", "text/plain"), "failed"),
    "no text": (lambda: Answer(bytes(range(256)) * 100, "text/plain"), "success"),
    "too large": (lambda: Answer(b"#" * (600 << 10), "text/plain"), "failed"),
}


@pytest.mark.parametrize("rules", ROBOTS)
def test_a_sites_rules_are_kept(rules: str, web: Opened, site: HostileSite) -> None:
    site.robots, status = ROBOTS[rules]

    said = web().visit(f"{site.url}/plain")

    assert said.status == status, said
    assert site.pages_asked() == (["/plain"] if status == "success" else [])


def test_a_host_is_asked_no_more_often_than_it_wants(web: Opened, site: HostileSite, tmp_path: Path) -> None:
    site.robots = lambda: Answer(b"User-agent: *\nCrawl-delay: 40", "text/plain")
    first, second = web(), web(visit_seconds=5, cache="record", cache_folder=tmp_path / "record")

    assert first.visit(f"{site.url}/plain").status == "success"
    refused = second.visit(f"{site.url}/museum")

    assert refused.response.endswith("127.0.0.1 is asked by too many at once: try again later.")
    assert site.pages_asked() == ["/plain"]
    assert not (tmp_path / "record").exists()  # it says nothing of the page


def test_excluded_domains_are_not_visited_by_name_or_by_redirect(web: Opened, site: HostileSite) -> None:
    environment = web(exclude=["Example.org"])

    for url in ("https://example.org/", "https://www.EXAMPLE.org./a", f"{site.url}/to/https://sub.example.org/"):
        assert environment.visit(url).response.endswith("pages of example.org may not be visited here.")


def test_places_are_found_in_a_page(web: Opened, site: HostileSite) -> None:
    environment = web()

    found = environment.call("find", url=f"{site.url}/long", text="LINE 1500  of")
    assert "'LINE 1500  of' is in it once." in found.response
    assert "Line 1500 of the log." in found.response
    assert environment.call("find", url=f"{site.url}/long", text="line").response.count("\n\n[") == passages.MOST_PLACES
    assert environment.call("find", url=f"{site.url}/long", text="whale").response.endswith("'whale' is not in it.")
    assert site.pages_asked() == ["/long"]


def test_a_page_is_scrolled_to_its_end(web: Opened, site: HostileSite) -> None:
    environment = web()
    parts = []
    while (said := environment.call("scroll", url=f"{site.url}/long")).status == "success":
        parts.append(said.response.partition(":\n")[2])

    assert "".join(parts) == "\n".join(f"Line {n} of the log." for n in range(2_000))
    assert "and none from" in said.response
    assert (
        environment.call("scroll", url=f"{site.url}/long", start=5)
        .response.partition(":\n")[2]
        .startswith("0 of the log")
    )


def test_a_page_too_long_for_the_model_is_halved_until_it_fits(web: Opened, site: HostileSite) -> None:
    model = Reader(longest=20_000)

    said = web(model).visit(f"{site.url}/long")

    assert [len(text) > 20_000 for _, text in model.asked] == [True, True, False]
    assert "a summary of" in said.response


def test_a_model_that_writes_nothing_leaves_the_pages_beginning(web: Opened, site: HostileSite) -> None:
    assert "The page begins:\nThe ferry leaves" in web(Reader(reply="")).visit(f"{site.url}/plain").response
