"""A window that writes down what happens to it. Runs in the guest: events.py LOG."""

import sys
import tkinter
from pathlib import Path

log = Path(sys.argv[1]).open("w", buffering=1)  # noqa: SIM115
root = tkinter.Tk()
root.title("Events")
root.geometry("800x500+200+100")


def note(kind: str):
    def write(event: tkinter.Event) -> None:
        what = event.keysym
        if kind in ("down", "up"):  # Tk tells a wheel to the side, buttons 6 and 7, as 4 and 5 with Shift
            what = event.num + 2 if event.num in (4, 5) and event.state & 1 else event.num
        log.write(f"{kind} {what} {event.x_root} {event.y_root}\n")

    return write


for kind, sequence in (("down", "<Button>"), ("up", "<ButtonRelease>"), ("key", "<Key>"), ("keyup", "<KeyRelease>")):
    root.bind(sequence, note(kind))
root.after(100, root.focus_force)
root.mainloop()
