"""The diagnosis table: one file a subsystem, each holds rows. A row never reads the host."""
