"""Reports of ``hwtune validate``: what a run came to, for a person and for a script."""
