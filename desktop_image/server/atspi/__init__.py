"""Reads the accessibility of every program on the desktop, fast.

A walk that asks one question at a time, as the usual libraries do, spends nearly all its time waiting. Here a program's tree
comes from its cache in one answer; what is missing there, and the details of what can be seen, is asked in batches, of all
programs at once. Tables of a million cells give the ones in sight. A program that does not answer costs one second and is
left out, with a note in its place.
"""
