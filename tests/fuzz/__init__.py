"""Random bytes for everything that reads bytes from elsewhere: `dev.py fuzz`."""
