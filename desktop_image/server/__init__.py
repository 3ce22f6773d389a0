"""The guest's HTTP server, which answers ``desktop-env``. Runs in the guest as root, for its user (`user`).

One module per concern; each answers within a deadline, with JSON or the requested file. Errors are JSON too:
``{"status": "error", "message": sentence, "error": sentence}`` with an HTTP status.
"""
