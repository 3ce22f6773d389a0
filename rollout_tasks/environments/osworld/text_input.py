"""Typing for the guest: replaces pyautogui's, which skips characters without a key and types '>' for '<'.

Sent to the guest as source, before every command that may type; needs only pyautogui and its dependencies there. Only
for X11: on other systems pyautogui's typing stays.
"""

SOURCE = """\
def _learn_to_type():
    try:
        from Xlib import X, XK, display
        from Xlib.ext import xtest
    except ImportError:
        return
    own, taken = pyautogui.typewrite, [0.0]

    def type_text(message, interval=0.0, **options):
        if not isinstance(message, str):
            return own(message, interval, **options)
        screen = display.Display()
        first, last = screen.display.info.min_keycode, screen.display.info.max_keycode
        rows = screen.get_keyboard_mapping(first, last - first + 1)
        spare = [first + place for place, row in enumerate(rows) if not any(row)]
        shift = screen.keysym_to_keycode(XK.XK_Shift_L)
        keys, lent, changed, symbols = {}, {}, set(), []
        for place, row in enumerate(rows):
            for column in (0, 1):
                keys.setdefault(row[column], (first + place, column == 1))
        for character in message.replace("\\r\\n", "\\n"):
            code = ord(character)
            symbol = {10: 0xFF0D, 13: 0xFF0D, 9: 0xFF09, 8: 0xFF08, 27: 0xFF1B}.get(code)
            if symbol is None:
                symbol = code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else 0x1000000 + code
            symbols.append(symbol)
        seconds, borrowed = len(symbols) * max(interval, 0.005), set()
        for symbol in symbols:
            if symbol not in keys and symbol not in borrowed:
                if len(borrowed) == len(spare):
                    seconds += 0.3
                    borrowed.clear()
                seconds += 0.05
                borrowed.add(symbol)
        if taken[0] + seconds > 90:
            screen.close()
            raise ValueError(
                f"typing this text takes {seconds:.0f} s, and a command may type for 90 s:"
                " none of it was typed; use several commands"
            )
        taken[0] += seconds
        for symbol in symbols:
            if symbol not in keys and symbol not in lent:
                if len(lent) == len(spare):
                    time.sleep(0.3)
                    lent.clear()
                lent[symbol] = spare[len(lent)]
                changed.add(lent[symbol])
                screen.change_keyboard_mapping(lent[symbol], [(symbol, symbol)])
                screen.sync()
                time.sleep(0.05)
            keycode, shifted = keys.get(symbol) or (lent[symbol], False)
            events = [(X.KeyPress, keycode), (X.KeyRelease, keycode)]
            for event, key in [(X.KeyPress, shift), *events, (X.KeyRelease, shift)] if shifted else events:
                xtest.fake_input(screen, event, key)
            screen.sync()
            time.sleep(max(interval, 0.005))
        if changed:
            time.sleep(0.3)
            for keycode in changed:
                screen.change_keyboard_mapping(keycode, [(0, 0)])
        screen.sync()
        screen.close()

    pyautogui.typewrite = pyautogui.write = type_text


_learn_to_type()
"""
"""Characters without a key get a spare key for a moment. Programs need a little time to notice a changed keyboard, both
after the change and before it is undone. A text for which the guest's server would not wait (120 s a command) is refused
before any of it is typed: it would be left half typed."""
