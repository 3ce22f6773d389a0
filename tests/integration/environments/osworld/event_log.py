"""A program for the guest that fills its screen and writes down every event of mouse and keyboard: tests read it."""

SOURCE = """
import tkinter
root = tkinter.Tk()
root.attributes('-fullscreen', True)
log = open('/home/user/events.log', 'w', buffering=1)

def note(kind, what):
    def write(event):
        # Tk reports a wheel's way to the side as its way up or down with shift.
        sideways = 'side' if what == 'num' and event.num > 3 and event.state & 1 else ''
        print(sideways + kind, getattr(event, what) if what else '', event.x_root, event.y_root, file=log)
    return write

root.bind('<ButtonPress>', note('down', 'num'))
root.bind('<ButtonRelease>', note('up', 'num'))
root.bind('<Motion>', note('move', ''))
root.bind('<KeyPress>', note('press', 'keysym'))
root.bind('<KeyRelease>', note('release', 'keysym'))
root.after(300, root.focus_force)
root.mainloop()
"""
SETUP = [
    {"type": "execute", "parameters": {"command": f"cat > /home/user/events.py <<'EOF'\n{SOURCE}\nEOF", "shell": True}},
    {"type": "launch", "parameters": {"command": ["python3", "/home/user/events.py"]}},
]
"""Setup steps that start it."""
