"""The guest's process 1: prepares the machine, starts the desktop, keeps it running and reaps orphans."""
