"""The scripted model: a real HTTP server that speaks Chat Completions and plays scripts instead of thinking.

It answers rollouts from each item's script, grades answers as a judge, and fails on demand. Everything it sends is marked
(`X-Scripted-Model: 1`, ``owned_by: scripted``), so that no report made with it can pass for a model's.
"""

API_KEY_VARIABLE = "SCRIPTED_MODEL_API_KEY"
"""The environment variable with the key that clients must send; if it is unset, they need none."""
