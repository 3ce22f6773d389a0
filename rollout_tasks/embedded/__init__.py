"""Embedded runs: broker, worker, VMs, Flower and scripted model on one machine, for as long as the run takes."""
