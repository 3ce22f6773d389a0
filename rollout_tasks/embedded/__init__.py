"""A whole run on one machine: broker, worker, VMs, Flower and scripted model, for as long as the run takes."""
