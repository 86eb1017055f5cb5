"""Runs holdfast.py against the server at API_URL (holdfast serve --dev --webhook-allow 127.0.0.0/8) with the key in API_KEY.

    API_URL=http://127.0.0.1:8080 API_KEY=try-me python3 -m unittest -v test_holdfast
"""

import contextlib
import http.client
import http.server
import json
import os
import queue
import tempfile
import threading
import unittest
import uuid

import holdfast

URL, KEY = os.environ["API_URL"], os.environ["API_KEY"]


def client(url=URL, **options):
    return holdfast.Holdfast(url, KEY, **options)


def person():
    return f"telegram:{uuid.uuid4().int % 10**15}"


class Server(http.server.ThreadingHTTPServer):
    """Answers with a function: handle(method, path, headers, body) → (status, body), or None to break the connection."""

    daemon_threads = True

    def __init__(self, handle):
        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answered = handle(self.command, self.path, self.headers, body)
                if answered is None:
                    self.close_connection = True
                    return
                self.send_response(answered[0])
                self.send_header("Content-Length", str(len(answered[1])))
                self.end_headers()
                self.wfile.write(answered[1])

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def forward(method, path, headers, body):
    """What the real server answers."""
    connection = http.client.HTTPConnection(URL.removeprefix("http://"))
    sent = {name: value for name, value in headers.items() if name.lower() not in ("host", "connection")}
    connection.request(method, path, body, sent)
    response = connection.getresponse()
    with contextlib.closing(connection):
        return response.status, response.read()


class TestWork(unittest.TestCase):
    def setUp(self):
        self.client, self.account = client(), person()

    def reserve(self, key="m1", feature="text.improve"):
        return self.client.reserve(self.account, feature, key=key, language="ru")

    def credits(self):
        return next(b["available"] for b in self.client.account(self.account)["balances"] if b["unit"] == "credit")

    def give(self, credits):
        self.client._call("PUT", "/v1/accounts/" + self.account)
        self.client._call("POST", f"/v1/accounts/{self.account}/grants", {"unit": "credit", "amount": credits, "source": "promo"}, "give")

    def test_two_presses_of_one_button_are_one_reservation_and_one_charge(self):
        first, second = self.reserve(), self.reserve()
        self.assertEqual(first["id"], second["id"])
        done = holdfast.work(self.client, first["id"], lambda lease: None)
        self.assertEqual((done["state"], done["used"]), ("committed", 1))
        self.assertEqual(self.credits(), 2)

    def test_a_refusal_has_a_reason_for_the_program_and_words_for_the_person(self):
        self.reserve("m1")
        with self.assertRaises(holdfast.Refused) as no:
            self.reserve("m2")
        self.assertEqual((no.exception.status, no.exception.reason), (409, "too_many_active"))
        self.assertIn("Дождитесь завершения текущего запроса", no.exception.detail)
        self.assertEqual(no.exception.body["max_active"], 1)

    def test_a_job_that_the_queue_delivers_twice_is_charged_once(self):
        held, delivered = self.reserve(), []
        for _ in range(2):
            holdfast.work(self.client, held["id"], lambda lease: delivered.append(lease.reservation))
        self.assertEqual(delivered, [held["id"]])
        self.assertEqual(self.credits(), 2)
        self.assertIsNone(holdfast.work(self.client, held["id"], self.fail))

    def test_a_job_that_another_worker_has_is_left_to_it(self):
        held = self.reserve()
        self.client.start(held["id"], "another")
        with self.assertRaises(holdfast.Refused) as no:
            holdfast.work(self.client, held["id"], self.fail)
        self.assertEqual(no.exception.reason, "already_running")

    def test_work_that_fails_gives_everything_back(self):
        held = self.reserve()

        def fails(lease):
            raise ValueError("the provider is down")

        with self.assertRaises(ValueError) as error:
            holdfast.work(self.client, held["id"], fails)
        released = error.exception.reservation
        self.assertEqual((released["state"], released["cause"]), ("released", "failed"))
        self.assertTrue(holdfast.nothing_charged(released))
        self.assertFalse(holdfast.nothing_charged(self.client.reservation(held["id"]) | {"used": 1}))
        self.assertEqual(self.credits(), 3)
        self.reserve("m2")  # the next one is free to go

    def test_a_worker_that_lost_its_lease_is_told_and_ends_nothing(self):
        held = self.reserve()

        def loses(lease):
            self.client.release(held["id"], lease.token, "crashed")
            self.assertTrue(lease.stop.wait(30))
            raise holdfast.Stopped

        with self.assertRaises(holdfast.Stopped) as stopped:
            holdfast.work(self.client, held["id"], loses, beat_every=0.01)
        self.assertIsNone(stopped.exception.reservation)
        self.assertEqual(self.client.reservation(held["id"])["cause"], "crashed")

    def test_a_person_who_asks_to_stop_is_charged_what_was_used(self):
        self.give(10)
        held = self.reserve(feature="image.generate")

        def draws(lease):
            self.client.cancel(held["id"])
            self.assertTrue(lease.stop.wait(30))
            self.assertTrue(lease.cancelled)
            return 3

        done = holdfast.work(self.client, held["id"], draws, beat_every=0.01)
        self.assertEqual((done["state"], done["used"], done["returned"]), ("committed", 3, 2))

    def test_an_answer_that_is_lost_is_asked_for_again_and_has_one_effect(self):
        lost = {"left": 1}

        def loses(method, path, headers, body):
            answered = forward(method, path, headers, body)
            if lost["left"]:
                lost["left"] -= 1
                return None  # it was done, and nobody heard of it
            return answered

        with Server(loses) as proxy:
            through = client(proxy.url, sleep=lambda _: None)
            held = through.reserve(self.account, "text.improve", key="m1")
            lost["left"] = 1
            started = through.start(held["id"], "worker")
            lost["left"] = 1
            done = through.commit(held["id"], started["lease_token"])
        self.assertEqual((held["id"], done["used"]), (self.reserve()["id"], 1))
        self.assertEqual(self.credits(), 2)

    def test_a_server_that_is_away_or_redirects_is_no_answer(self):
        with Server(lambda *_: (503, b"{}")) as away, Server(lambda *_: (302, b"{}")) as elsewhere:
            for url in (away.url, elsewhere.url, "http://127.0.0.1:1"):
                with self.assertRaises(holdfast.Unavailable):
                    client(url, retry_for=0.05, sleep=lambda _: None).reserve(self.account, "text.improve", key="m1")


class TestWebhooks(unittest.TestCase):
    def test_an_event_is_verified_and_acted_on_once(self):
        came = queue.Queue()

        def receive(method, path, headers, body):
            came.put((dict(headers), body))
            return 200, b""

        api, account = client(), person()
        with Server(receive) as receiver, tempfile.TemporaryDirectory() as folder:
            endpoint = api._call("POST", "/v1/endpoints", {"url": receiver.url, "types": ["reservation.commit"]})
            rotated = api._call("POST", f"/v1/endpoints/{endpoint['id']}/rotate")
            held = api.reserve(account, "text.improve", key="m1")
            holdfast.work(api, held["id"], lambda lease: None)
            headers, body = came.get(timeout=60)
            while json.loads(body)["account"] != account:  # another test's
                headers, body = came.get(timeout=60)
            api._call("PATCH", f"/v1/endpoints/{endpoint['id']}", {"paused": True})

            # Both secrets sign while one is replaced; either is enough to verify.
            for secrets in (endpoint["secret"], [rotated["secret"]], ["whsec_AAAA", rotated["secret"]]):
                event = holdfast.verify_webhook(secrets, headers, body)
                self.assertEqual((event["type"], event["data"]["reservation"]), ("reservation.commit", held["id"]))
            signed = int(headers["Webhook-Timestamp"])
            for name, arguments in {
                "another secret": ("whsec_AAAA", headers, body),
                "another body": (endpoint["secret"], headers, body.replace(b"reservation.commit", b"reservation.expire")),
                "another id": (endpoint["secret"], headers | {"Webhook-Id": "evt_1"}, body),
                "too old": (endpoint["secret"], headers, body, signed + 301),
                "from the future": (endpoint["secret"], headers, body, signed - 301),
                "no headers": (endpoint["secret"], {}, body),
                "no signature": (endpoint["secret"], headers | {"Webhook-Signature": ""}, body),
            }.items():
                with self.subTest(name), self.assertRaises(holdfast.BadSignature):
                    holdfast.verify_webhook(*arguments)

            acted = []
            seen = holdfast.Seen(os.path.join(folder, "seen.db"))
            with self.assertRaises(ValueError), seen.once(event["id"]) as new:
                self.assertTrue(new)
                raise ValueError("it could not be acted on")
            for _ in range(3):
                with seen.once(event["id"]) as new:
                    if new:
                        acted.append(event["id"])
            seen.close()
            after_restart = holdfast.Seen(os.path.join(folder, "seen.db"))
            with after_restart.once(event["id"]) as new:
                self.assertFalse(new)
            after_restart.close()
            self.assertEqual(acted, [event["id"]])


class TestStars(unittest.TestCase):
    def setUp(self):
        self.client, self.user = client(), uuid.uuid4().int % 10**15
        self.account = f"telegram:{self.user}"

    def wants_to_pay(self, payload, user=None):
        who = {"id": user or self.user, "first_name": "A", "language_code": "ru"}
        return {"update_id": 5, "pre_checkout_query": {"id": "q1", "from": who, "currency": "XTR", "total_amount": 100, "invoice_payload": payload}}

    def has_paid(self, payload, charge):
        paid = {"currency": "XTR", "total_amount": 100, "invoice_payload": payload, "telegram_payment_charge_id": charge, "provider_payment_charge_id": ""}
        return {"update_id": 6, "message": {"message_id": 1, "date": 1_800_000_000, "from": {"id": self.user}, "successful_payment": paid}}

    def test_a_payment_is_forwarded_answered_and_granted_once(self):
        order = self.client.telegram_order(7000001, self.account, "credits_100", language="ru")
        self.assertEqual(order["call"]["method"], "createInvoiceLink")
        self.assertEqual(order["call"]["parameters"]["prices"], [{"label": "100 кредитов", "amount": 100}])
        yes = self.client.telegram_update(7000001, self.wants_to_pay(order["payload"]))["calls"]
        self.assertEqual(yes, [{"method": "answerPreCheckoutQuery", "parameters": {"pre_checkout_query_id": "q1", "ok": True}, "action": None}])
        no = self.client.telegram_update(7000001, self.wants_to_pay(order["payload"], user=1))
        self.assertEqual(no["reason"], "wrong_person")
        self.assertIn("другому человеку", no["calls"][0]["parameters"]["error_message"])
        charge = str(uuid.uuid4())
        changed = [self.client.telegram_update(7000001, self.has_paid(order["payload"], charge))["changed"] for _ in range(2)]
        self.assertEqual(changed, [True, False])
        balances = self.client.account(self.account)["balances"]
        self.assertEqual([b["available"] for b in balances if b["unit"] == "credit"], [103])

    def test_a_payment_is_stopped_where_holdfast_cannot_be_asked(self):
        with Server(lambda *_: (401, b"{}")) as closed, Server(lambda *_: (200, b"yes")) as stranger:
            for url in ("http://127.0.0.1:1", closed.url, stranger.url):
                away = client(url, pre_checkout_within=0.2, sleep=lambda _: None)
                answered = away.telegram_update(7000001, self.wants_to_pay("x"))
                parameters = answered["calls"][0]["parameters"]
                self.assertEqual((parameters["pre_checkout_query_id"], parameters["ok"], answered["reason"]), ("q1", False, "try_again"))
                self.assertTrue(parameters["error_message"])
                # What was paid is told again instead.
                with self.assertRaises((holdfast.Refused, holdfast.Unavailable)):
                    client(url, retry_for=0.05, sleep=lambda _: None).telegram_update(7000001, self.has_paid("x", "c1"))

    def test_only_updates_about_stars_are_forwarded(self):
        self.assertTrue(holdfast.about_stars(self.wants_to_pay("x")))
        self.assertTrue(holdfast.about_stars(self.has_paid("x", "c1")))
        self.assertTrue(holdfast.about_stars({"update_id": 1, "subscription": {}}))
        self.assertFalse(holdfast.about_stars({"update_id": 1, "message": {"text": "hello"}}))
        self.assertFalse(holdfast.about_stars({"update_id": 1, "callback_query": {}}))


if __name__ == "__main__":
    unittest.main()
