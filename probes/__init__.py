"""What can be seen of a machine: one file a subsystem, each fills its part of the Machine."""
