// Holdfast over HTTP, with nothing but Node's own modules: copy this file into your program.
//
//     const client = new Holdfast("https://holdfast.example.com", key);
//     const held = await client.reserve("telegram:42", "text.improve", { key: "42:991" });   // before the job exists
//     await queue.add({ reservation: held.id, … });                                          // your own queue
//
//     await work(client, held.id, async (lease) => deliver(await improve(text)));            // in your worker: charged once, or not at all
//
// An error is Refused (a no, with words for the person) or Unavailable (no answer: everything here may simply be done again).

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { appendFileSync, closeSync, existsSync, fsyncSync, openSync, readFileSync } from "node:fs";

/** A no. `reason` is for the program, `detail` for the person, `body` has the numbers. */
export class Refused extends Error {
  constructor(status, body) {
    super(`${status} ${body.reason ?? ""}: ${body.problems ? JSON.stringify(body.problems) : (body.detail ?? "")}`);
    this.name = "Refused";
    this.status = status;
    this.reason = body.reason ?? "";
    this.detail = body.detail ?? "";
    this.body = body;
  }
}

/** No answer came, though it was asked for again and again. Do the same once more later, with the same key. */
export class Unavailable extends Error {
  constructor(message) {
    super(message);
    this.name = "Unavailable";
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The calls that a bot with a queue of its own needs. */
export class Holdfast {
  #url;
  #key;
  #options;

  /** retryFor bounds all attempts at one call together, timeout one attempt, in milliseconds. Telegram waits 10 s for a pre-checkout. */
  constructor(url, key, options = {}) {
    this.#url = url.replace(/\/$/, "");
    this.#key = key;
    this.#options = { retryFor: 30_000, timeout: 15_000, preCheckoutWithin: 5_000, sleep, ...options };
  }

  // Work.

  /** Holds what the work will cost. The same key, such as a message's id, is the same reservation, however often it comes. */
  reserve(account, feature, { key, language, ...more }) {
    return this.call("POST", "/v1/reservations", { account, feature, ...more }, { key, language });
  }

  start(reservation, worker, leaseSeconds = 60) {
    // With a key of its own: where the answer is lost, the second attempt finds the lease of the first.
    return this.call("POST", path(reservation, "start"), { worker, lease_seconds: leaseSeconds }, { key: randomUUID() });
  }

  heartbeat(reservation, leaseToken, leaseSeconds = 60) {
    return this.call("POST", path(reservation, "heartbeat"), { lease_token: leaseToken, lease_seconds: leaseSeconds });
  }

  commit(reservation, leaseToken, amount) {
    return this.call("POST", path(reservation, "commit"), { lease_token: leaseToken, amount });
  }

  release(reservation, leaseToken, cause = "failed") {
    return this.call("POST", path(reservation, "release"), { lease_token: leaseToken, cause });
  }

  cancel(reservation) {
    return this.call("POST", path(reservation, "cancel"));
  }

  reservation(reservation) {
    return this.call("GET", "/v1/reservations/" + encodeURIComponent(reservation));
  }

  account(name) {
    return this.call("GET", "/v1/accounts/" + encodeURIComponent(name));
  }

  // Telegram Stars. The key needs the scope money; the bot's token stays here.

  /** An order; its `call` makes the invoice at the Bot API. */
  telegramOrder(bot, account, product, { recurring = false, language } = {}) {
    return this.call("POST", `/v1/telegram/${encodeURIComponent(bot)}/orders`, { account, product, recurring }, { language });
  }

  /**
   * Hands an update over, and says what is to be called at the Bot API: make all `calls`, then answer Telegram.
   *
   * A pre_checkout_query is always answered, within 5 seconds: where Holdfast cannot be asked, with no. For everything else an
   * error means: answer Telegram's webhook with 503, and it tells the update again.
   */
  async telegramUpdate(bot, update, sorry = "The payment could not be checked just now. Please try again in a minute.") {
    const query = update.pre_checkout_query;
    const to = `/v1/telegram/${encodeURIComponent(bot)}/updates`;
    if (!query) return this.call("POST", to, update);
    try {
      return await this.call("POST", to, update, { within: this.#options.preCheckoutWithin });
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unavailable)) throw error;
      const parameters = { pre_checkout_query_id: query.id, ok: false, error_message: sorry };
      return {
        kind: "pre_checkout", changed: false, account: null, reason: "try_again", payment: null,
        calls: [{ method: "answerPreCheckoutQuery", parameters, action: null }],
      };
    }
  }

  /** Tells that Telegram has answered ok to the call that had this action. */
  telegramDone(bot, action) {
    return this.call("POST", `/v1/telegram/${encodeURIComponent(bot)}/done`, { action });
  }

  /** Asks until there is an answer: the same key and body in every attempt, so that it has one effect. */
  async call(method, to, body, { key, language, within } = {}) {
    const headers = { authorization: "Bearer " + this.#key, accept: "application/json, application/problem+json" };
    if (key !== undefined) headers["idempotency-key"] = key;
    if (language) headers["accept-language"] = language;
    let data;
    if (method === "POST" || method === "PATCH") {
      data = JSON.stringify(body ?? {});
      headers["content-type"] = "application/json";
    }
    const until = performance.now() + (within ?? this.#options.retryFor);
    for (let pause = 100; ; pause = Math.min(pause * 2, 2_000)) {
      const left = Math.max(Math.ceil(until - performance.now()), 100);
      const timeout = within === undefined ? this.#options.timeout : Math.min(this.#options.timeout, left);
      const { status, answered, wait } = await this.#attempt(method, to, data, headers, timeout);
      if (status >= 200 && status < 300 && answered) return answered;
      if (status >= 400 && status < 500 && status !== 429) throw new Refused(status, answered ?? {});
      pause = Math.max(wait ?? 0, pause);
      if (performance.now() + pause > until) throw new Unavailable(`${method} ${to}: ${status ? "status " + status : "no answer"}`);
      await this.#options.sleep(pause);
    }
  }

  async #attempt(method, to, data, headers, timeout) {
    try {
      // A redirect would carry the key to whoever is named there.
      const response = await fetch(this.#url + to, { method, body: data, headers, redirect: "manual", signal: AbortSignal.timeout(timeout) });
      const text = await response.text();
      const wait = Number(response.headers.get("retry-after") ?? 0) * 1000 || 0;
      return { status: response.status, answered: parsed(text), wait };
    } catch {
      return {};
    }
  }
}

const path = (reservation, verb) => `/v1/reservations/${encodeURIComponent(reservation)}/${verb}`;

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : undefined;
  } catch {
    return undefined;
  }
}

// The worker's side.

/**
 * Does what a reservation pays for, and charges it once.
 *
 * `job(lease)` works and delivers the result; what it resolves to is the amount used, undefined: all that is reserved. Its
 * error gives everything back, and is thrown again with the reservation as it ended in `error.reservation`. Give your provider
 * lease.reservation as idempotency key: it is the same whenever the queue delivers the job again. lease.signal is aborted where
 * the lease is lost, or where the person asked to stop (lease.cancelled).
 *
 * Resolves to the reservation as it ended, or null where it is not to be worked on: it has ended before, or the lease was
 * lost. Refused already_running and Unavailable mean: let the queue bring the job again later.
 */
export async function work(client, reservation, job, { worker = "worker", leaseSeconds = 60, beatEvery = (leaseSeconds * 1000) / 3 } = {}) {
  let started;
  try {
    started = await client.start(reservation, worker, leaseSeconds);
  } catch (error) {
    if (error instanceof Refused && ["already_ended", "not_found"].includes(error.reason)) return null;
    throw error;
  }
  const stop = new AbortController();
  const lease = { reservation, token: started.lease_token, reserved: started.reserved, signal: stop.signal, lost: false, cancelled: false };
  let over = false;
  let beating = Promise.resolve();
  const timer = setInterval(() => {
    beating = beating.then(() => (over || lease.lost ? undefined : beat(client, lease, leaseSeconds, stop)));
  }, beatEvery);
  let used;
  try {
    try {
      used = await job(lease);
    } finally {
      over = true;
      clearInterval(timer);
      await beating;
    }
  } catch (thrown) {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    error.reservation = null;
    if (!lease.lost) {
      // Where it cannot be told, it expires by itself.
      error.reservation = await client.release(reservation, lease.token, lease.cancelled ? "cancelled" : "failed").catch(() => null);
    }
    throw error;
  }
  if (lease.lost) return null;
  if (used === undefined && lease.cancelled) used = lease.reserved; // after a request to stop, a figure is asked for
  try {
    return await client.commit(reservation, lease.token, used);
  } catch (error) {
    if (error instanceof Refused && ["already_ended", "stale_lease"].includes(error.reason)) return null;
    throw error;
  }
}

async function beat(client, lease, leaseSeconds, stop) {
  try {
    const beaten = await client.heartbeat(lease.reservation, lease.token, leaseSeconds);
    lease.cancelled ||= beaten.cancel_requested;
    if (lease.cancelled) stop.abort();
  } catch (error) {
    if (!(error instanceof Refused)) return; // the lease may outlive it
    lease.lost = true;
    stop.abort();
  }
}

/** Whether a reservation proves that nothing was charged for it: say so to the person only then. */
export function nothingCharged(reservation) {
  const { state, used, late_used: late, debt } = reservation;
  return ["released", "expired"].includes(state) && used === 0 && late === 0 && debt === 0;
}

// Webhooks: Standard Webhooks, standardwebhooks.com.

/** It does not come from Holdfast, or is too old: answer 401. */
export class BadSignature extends Error {
  constructor(message) {
    super(message);
    this.name = "BadSignature";
  }
}

/**
 * The event of a webhook whose signature is right. `body` is what came, as a Buffer; `headers` are Node's, in lower case;
 * `secrets` are one or two whsec_…. Act on each event id once (see Seen), and answer 2xx then.
 */
export function verifyWebhook(secrets, headers, body, { now = Date.now() / 1000, tolerance = 300 } = {}) {
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((name) => String(headers["webhook-" + name] ?? ""));
  if (!id || !/^\d+$/.test(timestamp)) throw new BadSignature("the headers of a webhook are missing");
  if (Math.abs(now - Number(timestamp)) > tolerance) throw new BadSignature("it is too old, or this machine's clock is wrong");
  for (const secret of [].concat(secrets)) {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    const expected = Buffer.from("v1," + createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest("base64"));
    for (const signature of signatures.split(" ").map((text) => Buffer.from(text))) {
      if (signature.length === expected.length && timingSafeEqual(signature, expected)) return JSON.parse(body.toString());
    }
  }
  throw new BadSignature("the signature is wrong");
}

/** Which events were acted on, in a file. Where your effects are in a database, keep the ids there, in their transaction. */
export class Seen {
  #file;
  #ids = new Map(); // id → what is being done, or true

  constructor(file) {
    this.#file = file;
    if (existsSync(file)) for (const id of readFileSync(file, "utf8").split("\n")) if (id) this.#ids.set(id, true);
  }

  /** Acts on an event once; resolves to whether this was the time. What fails is not seen, so that it comes again. */
  async once(id, act) {
    for (let other = this.#ids.get(id); other; other = this.#ids.get(id)) {
      if (other === true) return false;
      await other.catch(() => {}); // the same event is being acted on: by its outcome it is seen, or not
    }
    const acting = (async () => act())();
    this.#ids.set(id, acting);
    try {
      await acting;
      const opened = openSync(this.#file, "a");
      try {
        appendFileSync(opened, id + "\n");
        fsyncSync(opened);
      } finally {
        closeSync(opened);
      }
    } catch (error) {
      this.#ids.delete(id);
      throw error;
    }
    this.#ids.set(id, true);
    return true;
  }
}

/** Whether an update of the Bot API is one of those that telegramUpdate is for. */
export function aboutStars(update) {
  const message = update.message ?? {};
  return "pre_checkout_query" in update || "subscription" in update || "successful_payment" in message || "refunded_payment" in message;
}
