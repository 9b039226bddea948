"""Compiling in other processes: ahead of all calls (`warm`), or beside those that another kernel
serves meanwhile (`misses`).
"""
