"""A session gateway: any agent with a base URL is pointed at it, and every model call of a session is limited and recorded."""
