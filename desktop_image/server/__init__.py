"""The guest's HTTP server: what ``desktop-env`` asks of a desktop, answered inside it. Runs in the guest as
root, for its user (`user`).

One module per concern; each answers within a deadline, with JSON or the file that was asked for. What goes wrong is JSON too:
``{"status": "error", "message": sentence, "error": sentence}`` with an HTTP status.
"""
