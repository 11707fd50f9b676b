"""The chat page: one document and its static files. Everything it shows, the browser asks of the JSON routes."""
