"""What a viewer sends over VNC, and what of it a desktop gets: in any pieces, of any version, however hostile."""

from __future__ import annotations

import pytest

from rollout_tasks.service.lending.viewer_messages import LONGEST_TEXT, RFBError, ViewerMessages

VERSION = b"RFB 003.008\n"
BEGINNING = VERSION + b"\x01\x01"
PIXEL_FORMAT = b"\x00\x00\x00\x00" + bytes([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0])
UPDATE = bytes([3, 1, 0, 0, 0, 0, 5, 0, 4, 0])
CONTINUOUS = bytes([150, 1, 0, 0, 0, 0, 5, 0, 4, 0])
FENCE = bytes([248, 0, 0, 0, 0, 0, 0, 1, 3]) + b"abc"
KEY_DOWN, KEY_UP = bytes([4, 1, 0, 0, 0, 0, 0, 97]), bytes([4, 0, 0, 0, 0, 0, 0, 97])
PRESSED, RELEASED = bytes([5, 1, 0, 10, 0, 20]), bytes([5, 0, 0, 11, 0, 22])
QEMU_DOWN = bytes([255, 0, 0, 1, 0, 0, 0, 97, 0, 0, 0, 30])
QEMU_UP = bytes([255, 0, 0, 0, 0, 0, 0, 97, 0, 0, 0, 30])
TEXT = bytes([6, 0, 0, 0, 0, 0, 0, 5]) + b"hello"
RESIZE = bytes([251, 0, 4, 0, 3, 0, 1, 0]) + bytes(16)
POWER = bytes([250, 0, 1, 2])


def encodings(*numbers: int) -> bytes:
    return b"\x02\x00" + len(numbers).to_bytes(2) + b"".join(one.to_bytes(4, signed=True) for one in numbers)


class Viewer:
    """One viewer of a desktop that speaks 3.8."""

    def __init__(self, *, may_help: bool = False, desktop: bytes = VERSION, begun: bool = True) -> None:
        self.may_help = may_help
        self.helped = 0
        self.messages = ViewerMessages(lambda: self.may_help, self._note)
        self.messages.read_greeting(desktop)
        if begun:
            assert self.sends(BEGINNING) == BEGINNING

    def sends(self, content: bytes) -> bytes:
        return self.messages.allowed(content)

    def _note(self) -> None:
        self.helped += 1


LOOKING = [PIXEL_FORMAT, encodings(0, 7, -223), UPDATE, CONTINUOUS, FENCE]
HELPING = [KEY_DOWN, KEY_UP, PRESSED, RELEASED, QEMU_DOWN, QEMU_UP, TEXT]


@pytest.mark.parametrize("message", LOOKING)
def test_what_a_viewer_needs_to_look_is_passed(message: bytes) -> None:
    viewer = Viewer()
    assert viewer.sends(message + UPDATE) == message + UPDATE
    assert viewer.helped == 0


@pytest.mark.parametrize("message", HELPING)
def test_who_only_looks_changes_nothing(message: bytes) -> None:
    viewer = Viewer()
    assert viewer.sends(UPDATE + message + FENCE) == UPDATE + FENCE
    assert viewer.helped == 0
    assert viewer.messages.release_held() == b""


@pytest.mark.parametrize("message", HELPING)
def test_who_helps_uses_keyboard_pointer_and_clipboard(message: bytes) -> None:
    viewer = Viewer(may_help=True)
    assert viewer.sends(message) == message
    assert viewer.helped == 1


@pytest.mark.parametrize("may_help", [False, True])
@pytest.mark.parametrize("message", [RESIZE, RESIZE[:6] + b"\x00\x00", POWER])
def test_nobody_changes_the_screen_or_the_power(message: bytes, may_help: bool) -> None:
    viewer = Viewer(may_help=may_help)
    assert viewer.sends(message + UPDATE) == UPDATE
    assert viewer.helped == 0


def test_pieces_mean_nothing() -> None:
    everything = BEGINNING + b"".join([*LOOKING, *HELPING, RESIZE, POWER, UPDATE])
    for may_help, expected in ((False, LOOKING), (True, [*LOOKING, *HELPING])):
        for size in (1, 2, 3, 7, 4096):
            viewer = Viewer(may_help=may_help, begun=False)
            pieces = [everything[at : at + size] for at in range(0, len(everything), size)]
            assert b"".join(map(viewer.sends, pieces)) == BEGINNING + b"".join(expected) + UPDATE


def test_others_stay_connected_whatever_the_viewer_says() -> None:
    viewer = Viewer(begun=False)
    assert viewer.sends(VERSION + b"\x01\x00") == BEGINNING


def test_only_encodings_that_are_known_are_asked_for() -> None:
    viewer = Viewer()
    extended_clipboard = int.from_bytes((0xC0A1E5CE).to_bytes(4), signed=True)
    asked = encodings(7, -316, extended_clipboard, -309, -258, 0, 12345)
    assert viewer.sends(asked) == encodings(7, -258, 0)
    assert viewer.sends(encodings(-316)) == encodings()


@pytest.mark.parametrize(
    ("desktop", "viewer", "said"),
    [
        (b"RFB 003.008\n", b"RFB 003.008\n", ""),
        (b"RFB 003.008\n", b"RFB 003.007\n", ""),
        (b"RFB 003.007\n", b"RFB 003.007\n", ""),
        (b"RFB 004.001\n", b"RFB 003.008\n", ""),
        (b"RFB 003.007\n", b"RFB 003.008\n", "not above the desktop's 3.7"),
        (b"RFB 003.003\n", b"RFB 003.003\n", "the viewer speaks version 3.3 of RFB; it must be 3.7 or 3.8"),
        (b"RFB 003.003\n", b"RFB 003.008\n", "not above the desktop's 3.3"),
        (b"RFB 003.008\n", b"RFB 003.003\n", "it must be 3.7 or 3.8"),
        (b"RFB 003.008\n", b"GET / HTTP/1", "the viewer does not speak RFB"),
    ],
)
def test_versions(desktop: bytes, viewer: bytes, said: str) -> None:
    made = Viewer(desktop=desktop, begun=False)
    if not said:
        assert made.sends(viewer) == viewer
        return
    with pytest.raises(RFBError, match=said):
        made.sends(viewer)


def test_the_desktop_speaks_first_and_in_pieces() -> None:
    early = ViewerMessages(lambda: False, lambda: None)
    early.read_greeting(VERSION[:5])
    with pytest.raises(RFBError, match="spoke before the desktop"):
        early.allowed(VERSION)
    whole = ViewerMessages(lambda: False, lambda: None)
    for at in range(len(VERSION)):
        whole.read_greeting(VERSION[at : at + 1])
    whole.read_greeting(b"\x01\x01anything else" * 1000)
    assert whole.allowed(BEGINNING) == BEGINNING
    with pytest.raises(RFBError, match="the desktop does not speak RFB"):
        ViewerMessages(lambda: False, lambda: None).read_greeting(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("kind", [0, 2, 16, 19])
def test_security_that_hides_what_follows_ends_the_view(kind: int) -> None:
    viewer = Viewer(begun=False)
    with pytest.raises(RFBError, match=f"chose security type {kind}; only None"):
        viewer.sends(VERSION + bytes([kind]))


KNOWN = {0, 2, 3, 4, 5, 6, 150, 248, 250, 251, 255}


@pytest.mark.parametrize("may_help", [False, True])
def test_what_is_not_known_ends_the_view_at_its_first_byte(may_help: bool) -> None:
    for kind in set(range(256)) - KNOWN:
        with pytest.raises(RFBError, match=f"type that is not known here: {kind}$"):
            Viewer(may_help=may_help).sends(bytes([kind]))


@pytest.mark.parametrize("may_help", [False, True])
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\x02\x00\xff\xff", "65535 encodings; it may be 256 at most"),
        (b"\x06\x00\x00\x00" + (LONGEST_TEXT + 1).to_bytes(4), "65537 bytes of text; it may be 65536 at most"),
        (b"\x06\x00\x00\x00\x7f\xff\xff\xff", "2147483647 bytes of text"),
        (b"\x06\x00\x00\x00\xff\xff\xff\xfc", "-4 bytes of text"),
        (b"\xf8\x00\x00\x00\x00\x00\x00\x00\x41", "65 bytes in a fence; it may be 64 at most"),
        (b"\xff\x01" + bytes(10), "a message of QEMU's that is not known here: 1"),
    ],
)
def test_lengths_that_no_viewer_needs_end_the_view(message: bytes, said: str, may_help: bool) -> None:
    with pytest.raises(RFBError, match=said):
        Viewer(may_help=may_help).sends(message)


def test_the_longest_text_is_passed_and_the_longest_list_of_screens_is_not() -> None:
    text = b"\x06\x00\x00\x00" + LONGEST_TEXT.to_bytes(4) + b"x" * LONGEST_TEXT
    assert Viewer(may_help=True).sends(text + UPDATE) == text + UPDATE
    screens = b"\xfb\x00\x04\x00\x03\x00\xff\x00" + bytes(16 * 255)
    assert Viewer(may_help=True).sends(screens + UPDATE) == UPDATE


def test_keys_and_buttons_that_are_held_are_released() -> None:
    viewer = Viewer(may_help=True)
    viewer.sends(KEY_DOWN + QEMU_DOWN + PRESSED)
    assert viewer.messages.release_held() == KEY_UP + QEMU_UP + b"\x05\x00" + PRESSED[2:]
    assert viewer.messages.release_held() == b""
    viewer.sends(KEY_DOWN + PRESSED + KEY_UP + RELEASED)
    assert viewer.messages.release_held() == b""


def test_what_is_held_when_help_ends_is_released_by_the_viewer() -> None:
    viewer = Viewer(may_help=True)
    viewer.sends(KEY_DOWN + PRESSED)
    viewer.may_help = False
    # Where the pointer went meanwhile is not told.
    assert viewer.sends(KEY_UP + RELEASED) == KEY_UP + b"\x05\x00" + PRESSED[2:]
    assert viewer.sends(KEY_DOWN + KEY_UP + RELEASED) == b""


def test_nobody_holds_keys_without_end() -> None:
    viewer = Viewer(may_help=True)
    with pytest.raises(RFBError, match="257 keys that are down"):
        viewer.sends(b"".join(bytes([4, 1, 0, 0]) + number.to_bytes(4) for number in range(257)))
