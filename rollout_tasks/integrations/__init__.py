"""What other frameworks see of this project; each module can be imported where its package is installed."""
