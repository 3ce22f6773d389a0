"""Talking to models over the OpenAI protocol, and the scripted model that stands in where none is configured."""
