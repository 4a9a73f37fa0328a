"""Tests: unit, snapshots, native; machines are made of files, not mocks."""
