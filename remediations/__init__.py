"""The diagnosis table: one module a subsystem, one function a row (see ``hwtune.diagnosis.row``)."""
