#!/usr/bin/env python3
"""Two steps of a SEND_EMAIL job as an HTTP service, with Python's standard library alone.

Outhaul calls each step with a signed POST and records the answer. It may call a step again whose answer
it never got, always under the same Idempotency-Key, so the worker remembers what it has answered.
"""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 16 * 1024 * 1024
MAX_AGE = 5 * 60  # seconds; an older call is a replay


class Refused(Exception):
    """No retry can help: answered with 422, after which the job is not tried again."""


def render(call):
    to = call["payload"].get("to", "")
    if "@" not in to:
        raise Refused("`to` is not an e-mail address")
    return {"subject": f"Welcome, {to.split('@')[0]}"}


def deliver(call):
    # What earlier steps answered stands in `results`, by the name of the step.
    subject = call["results"]["render"]["subject"]
    print(f"  sending {subject!r}, attempt {call['attempt']}", flush=True)
    return {"messageId": hashlib.sha256(call["jobId"].encode()).hexdigest()[:12]}


STEPS = {"/render": render, "/deliver": deliver}


def key_of(secret):
    """A secret that begins with whsec_ is base64, any other is the key itself."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"))
    return secret.encode()


def is_signed(headers, body, key, now):
    """Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`. There are two while a secret is rotated."""
    call_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent_at.isascii() or not sent_at.isdigit() or abs(now - int(sent_at)) > MAX_AGE:
        return False
    mac = hmac.new(key, f"{call_id}.{sent_at}.".encode() + body, hashlib.sha256)
    expected = b"v1," + base64.b64encode(mac.digest())
    offered = headers.get("webhook-signature", "").encode().split()
    # Compared in constant time, so that nobody can find a signature byte by byte.
    return any([hmac.compare_digest(expected, one) for one in offered])


class Answers:
    """What was answered, by Idempotency-Key. A real worker keeps this in its database, in the transaction
    that does the work; one that forgets at a restart may do a step twice."""

    def __init__(self):
        self._lock = threading.Lock()
        self._known = {}

    def once(self, key, work):
        # The same key twice at a time: the second waits and gets the first one's answer.
        with self._lock:
            turn = self._known.setdefault(key, {"lock": threading.Lock()})
        with turn["lock"]:
            if "answer" not in turn:
                turn["answer"] = work()
            return turn["answer"]


class Worker(BaseHTTPRequestHandler):
    answers = Answers()
    key = b""
    timeout = 30  # seconds without a byte

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > MAX_BODY:
            return self.reply(413, {"error": "say how long the body is, and keep it short"})
        body = self.rfile.read(int(length))
        if not is_signed(self.headers, body, self.key, time.time()):
            return self.reply(401, {"error": "the signature is not right"})
        step = STEPS.get(self.path)
        if step is None:
            return self.reply(404, {"error": "there is no such step"})
        call = json.loads(body)
        try:
            answer = self.answers.once(self.headers["idempotency-key"], lambda: step(call))
        except Refused as refused:
            # Outhaul records the status and never the text, so it is said here.
            print(f"  refused: {refused}", flush=True)
            return self.reply(422, {"error": str(refused)})
        except Exception as error:
            print(f"  failed, will be tried again: {error!r}", flush=True)
            return self.reply(500, {"error": "see the worker's log"})
        return self.reply(200, answer)

    def reply(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, template, *values):
        print(self.headers.get("idempotency-key", "-"), template % values, flush=True)


if __name__ == "__main__":
    Worker.key = key_of(os.environ["MAILER_SECRET"])
    print("listening on http://127.0.0.1:9000", flush=True)
    ThreadingHTTPServer(("127.0.0.1", 9000), Worker).serve_forever()
