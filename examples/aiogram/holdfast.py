"""Holdfast over HTTP, with nothing but the standard library: copy this file into your program.

    client = Holdfast("https://holdfast.example.com", key)
    held = client.reserve("telegram:42", "text.improve", key="42:991")     # before the job exists
    queue.push(held["id"], …)                                              # your own queue

    work(client, held["id"], lambda lease: deliver(improve(text)))         # in your worker: charged once, or not at all

It blocks: in asyncio, call it through asyncio.to_thread. An error is Refused (a no, with words for the person) or Unavailable
(no answer: everything here may simply be done again).
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import sqlite3
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

__all__ = [
    "BadSignature", "Holdfast", "Lease", "Refused", "Seen", "Stopped", "Unavailable",
    "about_stars", "nothing_charged", "verify_webhook", "work",
]


class Refused(Exception):
    """A no. `reason` is for the program, `detail` for the person, `body` has the numbers."""

    def __init__(self, status, body):
        self.status = status
        self.reason = body.get("reason", "")
        self.detail = body.get("detail", "")
        self.body = body
        super().__init__(f"{status} {self.reason}: {body.get('problems') or self.detail}")


class Unavailable(Exception):
    """No answer came, though it was asked for again and again. Do the same once more later, with the same key."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # it would carry the key to whoever is named there


class Holdfast:
    """The calls that a bot with a queue of its own needs. Safe for several threads."""

    def __init__(self, url, key, retry_for=30.0, timeout=15.0, pre_checkout_within=5.0, sleep=time.sleep):
        """retry_for bounds all attempts at one call together, timeout one attempt, in seconds. Telegram waits 10 for a pre-checkout."""
        self._url, self._key = url.rstrip("/"), key
        self._retry_for, self._timeout, self._pre_checkout_within, self._sleep = retry_for, timeout, pre_checkout_within, sleep
        self._opener = urllib.request.build_opener(_NoRedirects)

    # Work.

    def reserve(self, account, feature, key, language=None, **more):
        """Holds what the work will cost. The same key, such as a message's id, is the same reservation, however often it comes."""
        return self._call("POST", "/v1/reservations", {"account": account, "feature": feature, **more}, key, language)

    def start(self, reservation, worker, lease_seconds=60):
        # With a key of its own: where the answer is lost, the second attempt finds the lease of the first.
        body = {"worker": worker, "lease_seconds": lease_seconds}
        return self._call("POST", _path(reservation, "start"), body, str(uuid.uuid4()))

    def heartbeat(self, reservation, lease_token, lease_seconds=60):
        return self._call("POST", _path(reservation, "heartbeat"), {"lease_token": lease_token, "lease_seconds": lease_seconds})

    def commit(self, reservation, lease_token=None, amount=None):
        return self._call("POST", _path(reservation, "commit"), _given(lease_token=lease_token, amount=amount))

    def release(self, reservation, lease_token=None, cause="failed"):
        return self._call("POST", _path(reservation, "release"), _given(lease_token=lease_token, cause=cause))

    def cancel(self, reservation):
        return self._call("POST", _path(reservation, "cancel"))

    def reservation(self, reservation):
        return self._call("GET", "/v1/reservations/" + _escaped(reservation))

    def account(self, name):
        return self._call("GET", "/v1/accounts/" + _escaped(name))

    # Telegram Stars. The key needs the scope money; the bot's token stays here.

    def telegram_order(self, bot, account, product, recurring=False, language=None):
        """An order; its `call` makes the invoice at the Bot API."""
        body = {"account": account, "product": product, "recurring": recurring}
        return self._call("POST", f"/v1/telegram/{_escaped(bot)}/orders", body, language=language)

    def telegram_update(self, bot, update, sorry="The payment could not be checked just now. Please try again in a minute."):
        """Hands an update over, and says what is to be called at the Bot API: make all `calls`, then answer Telegram.

        A pre_checkout_query is always answered, within 5 seconds: where Holdfast cannot be asked, with no. For everything
        else an exception means: answer Telegram's webhook with 503, and it tells the update again.
        """
        query = update.get("pre_checkout_query")
        path = f"/v1/telegram/{_escaped(bot)}/updates"
        if query is None:
            return self._call("POST", path, update)
        try:
            return self._call("POST", path, update, within=self._pre_checkout_within)
        except (Refused, Unavailable):
            no = {"pre_checkout_query_id": query["id"], "ok": False, "error_message": sorry}
            call = {"method": "answerPreCheckoutQuery", "parameters": no, "action": None}
            return {"kind": "pre_checkout", "changed": False, "account": None, "reason": "try_again", "payment": None, "calls": [call]}

    def telegram_done(self, bot, action):
        """Tells that Telegram has answered ok to the call that had this action."""
        return self._call("POST", f"/v1/telegram/{_escaped(bot)}/done", {"action": action})

    # The call itself.

    def _call(self, method, path, body=None, key=None, language=None, within=None):
        """Asks until there is an answer: the same key and body in every attempt, so that it has one effect."""
        headers = {"Authorization": "Bearer " + self._key, "Accept": "application/json, application/problem+json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if language:
            headers["Accept-Language"] = language
        data = None
        if method == "POST":
            data = json.dumps(body or {}).encode()
            headers["Content-Type"] = "application/json"
        until = time.monotonic() + (self._retry_for if within is None else within)
        pause = 0.1
        while True:
            left = until - time.monotonic()
            timeout = self._timeout if within is None else max(min(self._timeout, left), 0.1)
            status, answered, wait = self._attempt(method, path, data, headers, timeout)
            if status is not None and 200 <= status < 300 and isinstance(answered, dict):
                return answered
            if status is not None and 400 <= status < 500 and status != 429:
                raise Refused(status, answered if isinstance(answered, dict) else {})
            pause = max(wait, pause)
            if time.monotonic() + pause > until:
                raise Unavailable(f"{method} {path}: " + (f"status {status}" if status else "no answer"))
            self._sleep(pause)
            pause = min(pause * 2, 2.0)

    def _attempt(self, method, path, data, headers, timeout):
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return response.status, _json(response.read()), 0.0
        except urllib.error.HTTPError as error:
            with error:
                wait = error.headers.get("Retry-After", "")
                try:
                    body = _json(error.read())
                except (OSError, http.client.HTTPException):
                    return None, None, 0.0
                return error.code, body, float(wait) if wait.isdigit() else 0.0
        except (OSError, http.client.HTTPException):
            return None, None, 0.0


def _escaped(name):
    return urllib.parse.quote(str(name), safe="")


def _path(reservation, verb):
    return f"/v1/reservations/{_escaped(reservation)}/{verb}"


def _given(**fields):
    return {name: value for name, value in fields.items() if value is not None}


def _json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


# The worker's side.


class Stopped(Exception):
    """Raise it out of the work when lease.stop is set: nobody waits for the result any more."""


class Lease:
    """The right to finish a reservation. `stop` is set where it is lost, or where the person asked to stop."""

    def __init__(self, started):
        self.reservation = started["id"]
        self.token = started["lease_token"]
        self.reserved = started["reserved"]
        self.stop = threading.Event()
        self.lost = False
        self.cancelled = False


def work(client, reservation, do, worker="worker", lease_seconds=60, beat_every=None):
    """Does what a reservation pays for, and charges it once.

    do(lease) works and delivers the result; what it returns is the amount used, None: all that is reserved. Its exception
    gives everything back, and is raised again with the reservation as it ended in `error.reservation`. Give your provider
    lease.reservation as idempotency key: it is the same whenever the queue delivers the job again.

    Answers the reservation as it ended, or None where it is not to be worked on: it has ended before, or the lease was lost.
    Refused already_running and Unavailable mean: let the queue bring the job again later.
    """
    try:
        lease = Lease(client.start(reservation, worker, lease_seconds))
    except Refused as no:
        if no.reason in ("already_ended", "not_found"):
            return None
        raise
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(client, lease, lease_seconds, beat_every or lease_seconds / 3, ended), daemon=True)
    beating.start()
    try:
        try:
            used = do(lease)
        finally:
            ended.set()
            beating.join()
    except BaseException as error:
        error.reservation = None
        if not lease.lost:
            with contextlib.suppress(Refused, Unavailable):  # it expires by itself then
                error.reservation = client.release(reservation, lease.token, "cancelled" if lease.cancelled else "failed")
        raise
    if lease.lost:
        return None
    if used is None and lease.cancelled:
        used = lease.reserved  # after a request to stop, a figure is asked for
    try:
        return client.commit(reservation, lease.token, used)
    except Refused as no:
        if no.reason in ("already_ended", "stale_lease"):
            return None
        raise


def _beat(client, lease, lease_seconds, every, ended):
    while not ended.wait(every):
        try:
            beaten = client.heartbeat(lease.reservation, lease.token, lease_seconds)
        except Unavailable:
            continue  # the lease may outlive it
        except Refused:
            lease.lost = True
            lease.stop.set()
            return
        if beaten.get("cancel_requested"):
            lease.cancelled = True
            lease.stop.set()


def nothing_charged(reservation):
    """Whether a reservation proves that nothing was charged for it: say so to the person only then."""
    over = reservation["state"] in ("released", "expired")
    return over and reservation["used"] == reservation["late_used"] == reservation["debt"] == 0


# Webhooks: Standard Webhooks, standardwebhooks.com.


class BadSignature(Exception):
    """It does not come from Holdfast, or is too old: answer 401."""


def verify_webhook(secrets, headers, body, now=None, tolerance=300):
    """The event of a webhook whose signature is right. `body` is what came, in bytes; `secrets` are one or two whsec_….

    Act on each event id once (see Seen), and answer 2xx then.
    """
    sent = {name.lower(): value for name, value in dict(headers).items()}
    identifier, timestamp, signatures = (sent.get("webhook-" + name, "") for name in ("id", "timestamp", "signature"))
    if not identifier or not timestamp.isdigit():
        raise BadSignature("the headers of a webhook are missing")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise BadSignature("it is too old, or this machine's clock is wrong")
    content = f"{identifier}.{timestamp}.".encode() + body
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        for signature in signatures.split(" "):
            if hmac.compare_digest(expected.encode(), signature.encode()):
                return json.loads(body)
    raise BadSignature("the signature is wrong")


class Seen:
    """Which events were acted on, in an SQLite file. Where your effects are in a database, keep the ids there, in their transaction."""

    def __init__(self, path):
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY)")
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def once(self, identifier):
        """with seen.once(event["id"]) as new: if new: act. What fails inside is not seen, so that it comes again."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (identifier,)).rowcount == 1
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self):
        self._db.close()


def about_stars(update):
    """Whether an update of the Bot API is one of those that telegram_update is for."""
    message = update.get("message") or {}
    return any(kind in update for kind in ("pre_checkout_query", "subscription")) or any(
        kind in message for kind in ("successful_payment", "refunded_payment")
    )
