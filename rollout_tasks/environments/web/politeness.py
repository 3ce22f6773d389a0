"""What is kept to before a page is asked for: excluded domains, the site's robots.txt, and turns at its host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import httpx

from benchmark.deadline import Deadline, TooSlowError
from rollout_tasks.environments.web.download import HostRefused, StatusRefused, download
from rollout_tasks.environments.web.host_turns import wait_for_turn
from rollout_tasks.environments.web.page_reader import RobotsVerdict, read_robots
from rollout_tasks.environments.web.refusal import Refused, RefusedForNow
from rollout_tasks.web_config import WebConfig

LARGEST_ROBOTS = 512 << 10
"""Bytes that are read of a robots.txt, as RFC 9309 asks for at least; a larger one is refused."""
_SITES_KEPT = 64
_NO_RULES = b""


class Politeness:
    """One episode's: it asks each site for its robots.txt once."""

    def __init__(self, config: WebConfig) -> None:
        """Asks nobody yet."""
        self._config = config
        self._agent = config.user_agent.partition(" ")[0].partition("/")[0]
        self._rules: OrderedDict[str, bytes | Refused] = OrderedDict()

    def before(self, url: httpx.URL, deadline: Deadline) -> None:
        """Waits until a page may be asked for.

        Raises:
            Refused: It may not, or not in time; the message says why.
        """
        check_domain(url.host, self._config.exclude)
        verdict = self._verdict(url, deadline)
        if not verdict.allowed:
            raise Refused(f"the robots.txt of {url.host} asks programs not to read it")
        wait_for_turn(url.host, max(self._config.delay, verdict.delay), seconds_left(deadline))

    def _verdict(self, url: httpx.URL, deadline: Deadline) -> RobotsVerdict:
        rules = self._rules_of(url, deadline)
        if isinstance(rules, Refused):
            raise rules
        if rules == _NO_RULES:
            return RobotsVerdict(allowed=True, delay=0.0)
        return read_robots(rules, self._agent, str(url), seconds_left(deadline))

    def _rules_of(self, url: httpx.URL, deadline: Deadline) -> bytes | Refused:
        site = str(url.copy_with(raw_path=b"/robots.txt"))
        if site not in self._rules:
            self._rules[site] = self._download(httpx.URL(site), deadline)
            if len(self._rules) > _SITES_KEPT:
                self._rules.popitem(last=False)
        return self._rules[site]

    def _download(self, site: httpx.URL, deadline: Deadline) -> bytes | Refused:
        """Returns the rules, or why no page of the site may be read. A site that says there are none has none (RFC 9309)."""

        def before_each(url: httpx.URL) -> None:
            check_domain(url.host, self._config.exclude)
            wait_for_turn(url.host, self._config.delay, seconds_left(deadline))

        try:
            return download(site, deadline, self._config.user_agent, before_each, LARGEST_ROBOTS).body
        except StatusRefused as refused:
            if 400 <= refused.status < 500 and refused.status != httpx.codes.TOO_MANY_REQUESTS:
                return _NO_RULES
            return Refused(f"the robots.txt of {site.host} cannot be had: {refused}")
        except RefusedForNow:
            raise
        except HostRefused as refused:
            return refused
        except Refused as refused:
            return Refused(f"the robots.txt of {site.host} cannot be had: {refused}")


def check_domain(host: str, excluded: Sequence[str]) -> None:
    """Checks that a host is not excluded.

    Raises:
        Refused: It is.
    """
    name = host.lower().rstrip(".")
    for domain in excluded:
        if name == domain or name.endswith(f".{domain}"):
            raise Refused(f"pages of {domain} may not be visited here")


def seconds_left(deadline: Deadline) -> float:
    """Returns the seconds that are left.

    Raises:
        Refused: There are none.
    """
    try:
        return deadline.left()
    except TooSlowError as error:
        raise Refused(f"it did not come within {deadline:g} s") from error
