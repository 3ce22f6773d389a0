"""OSWorld's desktop tasks on leased virtual machines, driven by the package `desktop-env`."""
