"""How evenly a drive answers: reads on a schedule, what delays them, and whether that comes at regular times.

Nothing here is imported by doctor unless it is asked for active checks.
"""
