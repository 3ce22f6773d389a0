"""Reads the accessibility trees of all programs on the desktop, quickly.

The usual libraries ask one question at a time and spend nearly all their time waiting. Here a program's tree comes from
its cache in one answer; what the cache lacks, and the details of visible nodes, are asked in batches, of all programs
at once. In tables with a million cells, only visible cells are read. A program that does not answer costs 5 seconds,
then 1 second each time, and is replaced by a note.
"""
