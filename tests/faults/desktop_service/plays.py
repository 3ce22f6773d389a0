"""Plays: one life of a lease with one fault in it, and what must hold after it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rollout_tasks.service.session_record import SUMMARY_NAME
from rollout_tasks.service_client import DesktopClient, DesktopServiceError, Lease
from rollout_tasks.trajectories.writer import RECORD_NAME
from tests.faults.desktop_service.ground import LEASE_TTL, REFUSED, STOPPED, TTL, Ground
from tests.faults.desktop_service.lives import LIVES, PATIENCE, Life, lived
from tests.faults.kinds import Kind
from tests.integration.service.desktop_service import OPERATOR, acquired, act
from vm_pool.states import VMState

LONGEST_LIFE = 60.0
GRACE = 5.0
KILLED, PAUSED = "SIGKILL", "SIGSTOP"
FILE_ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE")
REDIS_KINDS = (
    *map(str, (Kind.COMMAND_LOST, Kind.REPLY_LOST, Kind.RESET, Kind.KILL_BEFORE, Kind.KILL_AFTER)),
    REFUSED,
    STOPPED,
)
_MESSAGES = ("before sending", "after sending", "taking")
_FILE_CALLS = ("open", "mkdir", "write", "fsync", "replace", "rename")
_SPAWNING = {
    "before socketpair": "EMFILE",
    "before recv_fds": "EMFILE",
    "before pidfd_open": "EMFILE",
    "before fork": "EAGAIN",
    "before send_fds": "EPIPE",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at one point of one life."""

    life: str
    role: str
    """Who is at the point."""
    point: str
    number: int
    what: str
    whom: str
    """Who is killed or stopped; the role itself for errors."""

    @property
    def id(self) -> str:
        """How the row of the table is called."""
        return f"{self.life}: {self.what} of {self.whom}, {self.role} {self.point} {self.number}"

    @property
    def by_redis(self) -> bool:
        """Whether it happens on the way to Redis."""
        return self.what in REDIS_KINDS


def recorded(ground: Ground, life: str) -> list[Fault]:
    """The faults of a life, from one without a fault."""
    ground.director.counts.clear()
    play = ground.arm()
    told = Life()
    lived(life, ground.service.url, told)
    assert told.went_well, told
    _ended(ground, 20)
    requests = dict(ground.director.counts)
    found: list[Fault] = []
    for role, point, number in ground.passed(play):
        found += _faults_at(life, role, point, number)
    for (role, name), _ in sorted(requests.items()):
        if role in ("session", "service"):
            found += [Fault(life, role, name, 1, kind, role) for kind in REDIS_KINDS if _applies(role, kind)]
    return found


def _applies(role: str, kind: str) -> bool:
    return role == "session" or kind not in (Kind.KILL_BEFORE, Kind.KILL_AFTER, STOPPED)


def _faults_at(life: str, role: str, point: str, number: int) -> Iterable[Fault]:
    if point.startswith(_MESSAGES) or point in ("after fork", "after send_fds", "after pidfd_open"):
        for whom in ("service", "spawner", "session"):
            for what in (KILLED, PAUSED):
                yield Fault(life, role, point, number, what, whom)
    if point.split()[0] in _FILE_CALLS:
        yield Fault(life, role, point, number, KILLED, role)
        for what in FILE_ERRORS:
            yield Fault(life, role, point, number, what, role)
    if point in _SPAWNING and role != "session":
        yield Fault(life, role, point, number, _SPAWNING[point], role)


def play(ground: Ground, fault: Fault) -> list[str]:
    """Plays once; returns what was wrong. A point that was not met is none of it: what follows a fault may differ."""
    if fault.by_redis:
        return _play(ground, fault)  # another's requests would be counted, too
    problems: list[str] = []
    service = ground.service.process.pid
    with DesktopClient(ground.service.url, OPERATOR, patience=PATIENCE) as client:
        ground.arm()
        kept = client.acquire(item="two", timeout=PATIENCE)
        problems += _play(ground, fault, kept)
        try:
            turn = kept.act("work").turn
            kept.release()
        except DesktopServiceError as error:
            turn = 0
            if ground.service.process.pid == service:
                problems.append(f"another's lease: {error}")
    if turn > 1:
        problems.append(f"another's act was carried out {turn} times")
    if not _ended(ground, GRACE + LEASE_TTL):
        problems.append("another's desktop is not free in time")
    return problems


def _play(ground: Ground, fault: Fault, kept: Lease | None = None) -> list[str]:
    said = len(ground.service.said())
    before = _descriptors(ground)
    service = ground.service.process.pid
    ground.director.counts.clear()
    if fault.by_redis:
        name = ground.arm()
        ground.director.armed = (fault.role, fault.point, fault.number, fault.what)
    else:
        name = ground.arm(role=fault.role, point=fault.point, number=fault.number, what=fault.what, whom=fault.whom)
    told = Life()
    work = threading.Thread(target=lived, args=(fault.life, ground.service.url, told), daemon=True)
    work.start()
    in_time = ground.supervise(work, LONGEST_LIFE)
    ground.director.armed = None
    problems = [] if in_time else [f"the client had no last answer within {LONGEST_LIFE:g} s"]
    met = ground.was_met = ground.met_in(name)
    ground.arm()
    problems += _wrong_answers(told, fault)
    own = kept.state.lease_id if kept is not None else ""
    problems += _not_free(ground, own)
    same = ground.service.process.pid == service
    problems += _wrong_record(ground, told, service_lived=same and in_time, writes=not _is_of_files(fault))
    problems += _left(ground, before if same else None, 1 if kept is not None and same else 0)
    log = ground.service.said()[said:]
    if "Traceback" in log:
        problems.append(f"a traceback in the log: {log[log.index('Traceback') :][:1500]}")
    problems += _next_is_served(ground, own)
    return [f"{one} [{'met' if met else 'not met'}; {told}]" for one in problems]


def after(ground: Ground) -> list[str]:
    """What must hold after whatever a client did: all desktops are free in time, nothing is left, and the next is served."""
    return [*_not_free(ground), *_left(ground, None), *_next_is_served(ground)]


def _is_of_files(fault: Fault) -> bool:
    return fault.point.split()[0] in _FILE_CALLS


def _wrong_answers(told: Life, fault: Fault) -> list[str]:
    found = []
    if told.broke:
        found.append(f"no clear answer: {told.broke}")
    if told.refused and told.status == 503 and "its log says why" in told.refused:
        found.append(f"no clear sentence: {told.refused}")
    if told.turns != list(range(1, len(told.turns) + 1)):
        found.append(f"acts were answered as {told.turns}")
    if told.evaluated and told.score != 1.0:
        found.append(f"a score of {told.score}")
    if "used up" in told.refused:
        found.append(f"a repeated call is told {told.refused!r}")
    del fault
    return found


def _not_free(ground: Ground, kept: str = "") -> list[str]:
    """A lease that its client left ends by the client's silence; one that nobody holds by its TTL."""
    if _ended(ground, TTL + LEASE_TTL + GRACE, kept):
        return []
    held = [(vm.vm_id, str(vm.state), vm.holder) for vm in ground.pool.status().vms]
    return [f"not free in time: {held}; waiters {ground.pool.status().waiters}"]


def _ended(ground: Ground, seconds: float, kept: str = "") -> bool:
    """Whether all desktops are free in time, and nobody has a lease but one that is kept."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ground.pool.reap()
        with ground.service.client() as boss:
            leases = {one["lease_id"] for one in boss.get("/leases").json()["leases"]} - {kept}
            status = ground.pool.status()
            held = [vm for vm in status.vms if vm.state is not VMState.FREE and not vm.holder.endswith(kept or "-")]
            if not held and not status.waiters and not leases:
                return True
        time.sleep(0.05)
    return False


def _wrong_record(ground: Ground, told: Life, *, service_lived: bool, writes: bool) -> list[str]:
    if not told.lease_id:
        return []
    folder = ground.service.records / told.lease_id
    steps = [line for line in _lines(folder / RECORD_NAME) if line.get("kind") == "step"]
    found = []
    if len(steps) > told.asked and told.asked:
        found.append(f"{len(steps)} acts were carried out, {told.asked} were asked for")
    if writes and len(steps) < len(told.turns):
        found.append(f"{len(told.turns)} acts were answered, {len(steps)} are recorded")
    end = next(iter(_lines(folder / SUMMARY_NAME, whole=True)), None)
    if end is None and service_lived and writes:
        found.append("the record does not say how it ended")
    if end is not None and told.evaluated and end.get("score") != told.score:
        found.append(f"told {told.score}, recorded {end.get('score')}")
    if end is not None and end.get("score") is not None and told.refused and told.asked:
        found.append("a score on record that the client was not told")
    if end is not None and end.get("score") is not None and told.refused and not told.turns:
        found.append("a score without acts")
    return found


def _lines(path: Path, *, whole: bool = False) -> list[dict[str, object]]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(text)] if whole else [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _descriptors(ground: Ground) -> tuple[int, int]:
    """Descriptors and threads of the service."""
    pid = ground.service.process.pid
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(list(Path(f"/proc/{pid}/task").iterdir()))


def _left(ground: Ground, before: tuple[int, int] | None, sessions: int = 0) -> list[str]:
    """What is left but so many sessions."""
    deadline = time.monotonic() + GRACE
    while (left := [*ground.left()[sessions:], *_too_many(ground, before)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    temporary = [str(path) for path in ground.service.records.glob("*/.*.tmp")]
    for path in temporary:
        Path(path).unlink()
    if before is not None:
        left += temporary
    return [f"left: {one}" for one in left]


def _too_many(ground: Ground, before: tuple[int, int] | None) -> list[str]:
    """Descriptors that came to stay; a few may be Redis connections of threads, and pools of threads grow to a most."""
    if before is None:
        return []
    now = _descriptors(ground)[0]
    return [f"{now - before[0]} descriptors more"] if now > before[0] + 4 else []


def _next_is_served(ground: Ground, kept: str = "") -> list[str]:
    with ground.service.client() as boss:
        try:
            lease = acquired(boss, item="two")
            reply = act(boss, lease, "a")
            boss.delete(f"/leases/{lease['lease_id']}")
        except (AssertionError, OSError, ValueError) as error:
            return [f"the next client was not served: {error}"]
    if reply.status_code != 200 or reply.json()["turn"] != 1:
        return [f"the next client's act: {reply.status_code} {reply.text[:200]}"]
    return [] if _ended(ground, GRACE, kept) else ["the next client's desktop is not free in time"]


__all__ = ["LIVES", "Fault", "after", "play", "recorded"]
