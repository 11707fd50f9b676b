"""How an alert leaves: by webhook or by e-mail. Blocks, so it is called in a thread; decides not what is an alert.

A webhook goes to the host the operator named, or to public addresses, as judged when they are dialled; redirects are
not followed, as the real target of one is nobody's word. What is signed can be checked: HMAC-SHA256 over time and body.
"""

import hashlib
import hmac
import http.client
import json
import smtplib
import socket
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from swarm_core.egress import Door, make_door
from swarm_core.errors import BadRequest, Unavailable

from swarm_leader.telemetry.alerts import Alert

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1024
SMTP_PORTS = {"smtp": 25, "smtps": 465}


class _CheckedConnection(http.client.HTTPSConnection):
    """HTTPS to an address the door lets through."""

    def __init__(self, host: str, port: int, door: Door, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S, context=context)
        self._door = door
        self._tls = context

    def connect(self) -> None:
        """Raises OSError when nothing may be dialled, or answers."""
        refusals = []
        for *_, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            if why := self._door.why_address_refused(address):
                refusals.append(why)
                continue
            plain = socket.create_connection(address[:2], TIMEOUT_S)
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
            return
        raise OSError("; ".join(refusals) or f"{self.host} has no address")


class Webhook:
    """POST of a JSON document. secret: "" does not sign. Raises BadRequest for a URL that is not https."""

    def __init__(
        self, url: str, secret: str, unix_s: Callable[[], float], context: ssl.SSLContext | None = None
    ) -> None:
        self._parts = urlsplit(url)
        if self._parts.scheme != "https" or not self._parts.hostname:
            raise BadRequest("SWARM_ALERT_WEBHOOK must be an https:// address", field="SWARM_ALERT_WEBHOOK")
        self._url = url
        self._secret = secret.encode()
        self._unix_s = unix_s
        self._context = context or ssl.create_default_context()
        self._door: Door | None = None

    def send(self, alert: Alert) -> None:
        """Raises Unavailable when it was not taken."""
        event = alert.event
        facts = {
            "title": alert.title,
            "words": alert.words,
            "kind": event.kind,
            "pool": event.pool,
            "fellow_id": event.fellow_id,
            "fellow_name": event.fellow_name,
            "at_s": event.at_s,
        }
        body = json.dumps(facts).encode()
        try:
            status = self._post(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"the webhook did not answer: {error}") from error
        if not 200 <= status < 300:
            raise Unavailable(f"the webhook answered {status}")

    def _post(self, body: bytes) -> int:
        # Resolved at the first alert, not at the start of a leader whose network may not be up yet.
        self._door = self._door or make_door(self._url, ())
        host, port = self._parts.hostname or "", self._parts.port or 443
        headers = {"Content-Type": "application/json", "User-Agent": "silentswarm", **self._signature(body)}
        connection = _CheckedConnection(host, port, self._door, self._context)
        try:
            target = self._parts.path or "/"
            connection.request("POST", f"{target}?{self._parts.query}" if self._parts.query else target, body, headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
            return answer.status
        finally:
            connection.close()

    def _signature(self, body: bytes) -> dict[str, str]:
        if not self._secret:
            return {}
        at_s = str(int(self._unix_s()))
        signed = hmac.new(self._secret, at_s.encode() + b"." + body, hashlib.sha256).hexdigest()
        return {"X-Swarm-Timestamp": at_s, "X-Swarm-Signature": f"sha256={signed}"}


class Email:
    """A mail by SMTP. url: smtp://[USER:PASSWORD@]HOST[:PORT] or smtps://...; to: addresses, comma separated.

    A password is sent in TLS only. Raises BadRequest for what is no such URL.
    """

    def __init__(self, url: str, to: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._to = [address.strip() for address in to.split(",") if address.strip()]
        if parts.scheme not in SMTP_PORTS or not parts.hostname:
            raise BadRequest("SWARM_ALERT_SMTP_URL must be smtp:// or smtps://", field="SWARM_ALERT_SMTP_URL")
        if not self._to or any(not address.isprintable() or "@" not in address for address in self._to):
            raise BadRequest("SWARM_ALERT_TO must be one or more e-mail addresses", field="SWARM_ALERT_TO")
        self._is_tls = parts.scheme == "smtps"
        self._host, self._port = parts.hostname, parts.port or SMTP_PORTS[parts.scheme]
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        self._context = context or ssl.create_default_context()

    def send(self, alert: Alert) -> None:
        """Raises Unavailable when it was not taken."""
        mail = EmailMessage()
        mail["Subject"] = "".join(each for each in alert.title if each.isprintable())
        mail["From"] = self._user if "@" in self._user else f"silentswarm@{self._host}"
        mail["To"] = ", ".join(self._to)
        mail.set_content(alert.words + "\n")
        try:
            with self._connect() as smtp:
                smtp.send_message(mail)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise Unavailable(f"the mail was not taken: {type(error).__name__}") from error  # words may hold the login

    def _connect(self) -> smtplib.SMTP:
        if self._is_tls:
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, timeout=TIMEOUT_S, context=self._context)
        else:
            smtp = smtplib.SMTP(self._host, self._port, timeout=TIMEOUT_S)
        try:
            smtp.ehlo()
            has_tls = self._is_tls
            if not has_tls and smtp.has_extn("starttls"):
                smtp.starttls(context=self._context)
                has_tls = True
            if self._password and not has_tls:
                raise ValueError("a password is not sent without TLS")
            if self._password:
                smtp.login(self._user, self._password)
        except BaseException:
            smtp.close()
            raise
        return smtp
