"""Files on disk: whole or not there at all, locked while in use, never run as code."""
