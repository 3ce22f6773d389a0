"""Sessions on leased desktops for programs that are not rollouts; `openenv` serves them. Begin reading at `desktop_sessions`."""
