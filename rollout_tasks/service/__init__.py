"""Sessions on leased desktops for programs that are not rollouts. Knows nothing of HTTP. Begin reading at `desktop_sessions`."""
