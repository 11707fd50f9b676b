"""One reply of any endpoint: its generations read from the leader, and handed to its reader. Words no endpoint."""
