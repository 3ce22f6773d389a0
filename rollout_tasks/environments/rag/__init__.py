"""Questions about a corpus, which the agent searches."""
