"""Runs in the place of the gateway under `swarm up`: every GET is answered 200."""

import http.server
import os


class Answers(http.server.BaseHTTPRequestHandler):
    """Alive, and nothing more."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(os.environ["SWARM_HTTP_PORT"])), Answers).serve_forever()
