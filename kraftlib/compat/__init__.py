"""The interfaces of others over `kraftlib.connect`, for programs that come from them. Each needs its own extra."""
