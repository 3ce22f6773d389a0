"""Other programs that this pipeline works in; each module is importable only where that program's package is."""
