"""Reports: what a diagnosis looks like to a person and to a script."""
