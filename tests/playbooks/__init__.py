"""The Ansible collection against hosts of its own: see ``lab.py``."""
