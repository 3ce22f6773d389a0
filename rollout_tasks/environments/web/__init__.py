"""The environment `web`: an agent searches the web and reads pages. Pages are fetched by the worker, and parsed in cells."""
