"""Sockets: the listening server and its connections."""
