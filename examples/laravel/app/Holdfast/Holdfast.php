<?php

/*
 * Holdfast over HTTP, with nothing but PHP's own functions (8.1 or newer): copy this file into your program and name it in
 * composer.json, under autoload.files.
 *
 *     $client = new Client('https://holdfast.example.com', $key);
 *     $held = $client->reserve('telegram:42', 'text.improve', key: '42:991');      // before the job exists
 *     ImproveText::dispatch($held['id'], …);                                       // your own queue
 *
 *     work($client, $held['id'], fn (Lease $lease) => deliver(improve($text)));    // in your job: charged once, or not at all
 *
 * An exception is Refused (a no, with words for the person) or Unavailable (no answer: everything here may simply be done again).
 */

declare(strict_types=1);

namespace App\Holdfast;

use Closure;
use InvalidArgumentException;
use RuntimeException;
use Throwable;

/** A no. `reason` is for the program, `detail` for the person, `body` has the numbers. */
final class Refused extends RuntimeException
{
    public readonly string $reason;
    public readonly string $detail;

    public function __construct(public readonly int $status, public readonly array $body)
    {
        $this->reason = (string) ($body['reason'] ?? '');
        $this->detail = (string) ($body['detail'] ?? '');
        parent::__construct("$status $this->reason: " . (isset($body['problems']) ? json_encode($body['problems']) : $this->detail));
    }
}

/** No answer came, though it was asked for again and again. Do the same once more later, with the same key. */
final class Unavailable extends RuntimeException
{
}

/** The calls that a bot with a queue of its own needs. */
final class Client
{
    private readonly string $url;
    private readonly Closure $sleep;

    /** retryFor bounds all attempts at one call together, timeout one attempt, in seconds. Telegram waits 10 for a pre-checkout. */
    public function __construct(
        string $url,
        private readonly string $key,
        private readonly float $retryFor = 30.0,
        private readonly float $timeout = 15.0,
        private readonly float $preCheckoutWithin = 5.0,
        ?Closure $sleep = null,
    ) {
        $this->url = rtrim($url, '/');
        $this->sleep = $sleep ?? static fn (float $seconds) => usleep((int) ($seconds * 1e6));
        if (preg_match('/[^!-~]/', $key) || $key === '') {
            throw new InvalidArgumentException('the key is the text that holdfast key create printed');
        }
    }

    // Work.

    /** Holds what the work will cost. The same key, such as a message's id, is the same reservation, however often it comes. */
    public function reserve(string $account, string $feature, string $key, ?string $language = null, array $more = []): array
    {
        return $this->call('POST', '/v1/reservations', ['account' => $account, 'feature' => $feature] + $more, $key, $language);
    }

    public function start(string $reservation, string $worker, int $leaseSeconds = 60): array
    {
        // With a key of its own: where the answer is lost, the second attempt finds the lease of the first.
        return $this->call('POST', self::path($reservation, 'start'), ['worker' => $worker, 'lease_seconds' => $leaseSeconds], bin2hex(random_bytes(16)));
    }

    public function heartbeat(string $reservation, string $leaseToken, int $leaseSeconds = 60): array
    {
        return $this->call('POST', self::path($reservation, 'heartbeat'), ['lease_token' => $leaseToken, 'lease_seconds' => $leaseSeconds]);
    }

    public function commit(string $reservation, ?string $leaseToken = null, ?int $amount = null): array
    {
        return $this->call('POST', self::path($reservation, 'commit'), self::given(['lease_token' => $leaseToken, 'amount' => $amount]));
    }

    public function release(string $reservation, ?string $leaseToken = null, string $cause = 'failed'): array
    {
        return $this->call('POST', self::path($reservation, 'release'), self::given(['lease_token' => $leaseToken, 'cause' => $cause]));
    }

    public function cancel(string $reservation): array
    {
        return $this->call('POST', self::path($reservation, 'cancel'), []);
    }

    public function reservation(string $reservation): array
    {
        return $this->call('GET', '/v1/reservations/' . rawurlencode($reservation));
    }

    public function account(string $name): array
    {
        return $this->call('GET', '/v1/accounts/' . rawurlencode($name));
    }

    // Telegram Stars. The key needs the scope money; the bot's token stays here.

    /** An order; its `call` makes the invoice at the Bot API. */
    public function telegramOrder(string $bot, string $account, string $product, bool $recurring = false, ?string $language = null): array
    {
        return $this->call('POST', '/v1/telegram/' . rawurlencode($bot) . '/orders', ['account' => $account, 'product' => $product, 'recurring' => $recurring], null, $language);
    }

    /**
     * Hands an update over, as the JSON that came, and says what is to be called at the Bot API: make all `calls`, then answer Telegram.
     *
     * A pre_checkout_query is always answered, within 5 seconds: where Holdfast cannot be asked, with no. For everything else an
     * exception means: answer Telegram's webhook with 503, and it tells the update again.
     */
    public function telegramUpdate(string $bot, string $update, string $sorry = 'The payment could not be checked just now. Please try again in a minute.'): array
    {
        $query = json_decode($update, true)['pre_checkout_query'] ?? null;
        $to = '/v1/telegram/' . rawurlencode($bot) . '/updates';
        if ($query === null) {
            return $this->call('POST', $to, $update);
        }
        try {
            return $this->call('POST', $to, $update, within: $this->preCheckoutWithin);
        } catch (Refused | Unavailable) {
            $no = ['pre_checkout_query_id' => $query['id'], 'ok' => false, 'error_message' => $sorry];
            $call = ['method' => 'answerPreCheckoutQuery', 'parameters' => $no, 'action' => null];
            return ['kind' => 'pre_checkout', 'changed' => false, 'account' => null, 'reason' => 'try_again', 'payment' => null, 'calls' => [$call]];
        }
    }

    /** Tells that Telegram has answered ok to the call that had this action. */
    public function telegramDone(string $bot, string $action): array
    {
        return $this->call('POST', '/v1/telegram/' . rawurlencode($bot) . '/done', ['action' => $action]);
    }

    /** Asks until there is an answer: the same key and body in every attempt, so that it has one effect. A text is sent as it is. */
    public function call(string $method, string $to, array|string|null $body = null, ?string $key = null, ?string $language = null, ?float $within = null): array
    {
        $headers = ['Authorization: Bearer ' . $this->key, 'Accept: application/json, application/problem+json', 'Connection: close'];
        foreach (['Idempotency-Key' => $key, 'Accept-Language' => $language] as $name => $value) {
            if ($value !== null && $value !== '') {
                $headers[] = "$name: " . str_replace(["\r", "\n"], ' ', $value);
            }
        }
        $data = null;
        if ($body !== null) {
            $data = is_string($body) ? $body : json_encode($body === [] ? (object) [] : $body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
            $headers[] = 'Content-Type: application/json';
        }
        $until = microtime(true) + ($within ?? $this->retryFor);
        for ($pause = 0.1;; $pause = min($pause * 2, 2.0)) {
            $timeout = $within === null ? $this->timeout : min($this->timeout, max($until - microtime(true), 0.1));
            [$status, $answered, $wait] = $this->attempt($method, $to, $data, $headers, $timeout);
            if ($status >= 200 && $status < 300 && $answered !== null) {
                return $answered;
            }
            if ($status >= 400 && $status < 500 && $status !== 429) {
                throw new Refused($status, $answered ?? []);
            }
            $pause = max($wait, $pause);
            if (microtime(true) + $pause > $until) {
                throw new Unavailable("$method $to: " . ($status > 0 ? "status $status" : 'no answer'));
            }
            ($this->sleep)($pause);
        }
    }

    /** @return array{int, ?array, float} status (0: no answer), what was answered, how long to wait */
    private function attempt(string $method, string $to, ?string $data, array $headers, float $timeout): array
    {
        $context = stream_context_create(['http' => [
            'method' => $method, 'header' => $headers, 'content' => $data ?? '', 'timeout' => $timeout, 'protocol_version' => '1.1',
            'ignore_errors' => true,
            'follow_location' => 0, // it would carry the key to whoever is named there
        ]]);
        $http_response_header = [];
        $text = @file_get_contents($this->url . $to, false, $context);
        $head = $http_response_header;
        if ($text === false || $head === [] || !preg_match('~^HTTP/\S+ (\d{3})~', $head[0], $found)) {
            return [0, null, 0.0];
        }
        $wait = 0.0;
        foreach ($head as $line) {
            if (preg_match('/^(retry-after|content-length):\s*(\d+)\s*$/i', $line, $header)) {
                if (strtolower($header[1]) === 'retry-after') {
                    $wait = (float) $header[2];
                } elseif ((int) $header[2] !== strlen($text)) {
                    return [0, null, 0.0]; // it was cut off
                }
            }
        }
        $answered = json_decode($text, true);
        return [(int) $found[1], is_array($answered) ? $answered : null, $wait];
    }

    private static function path(string $reservation, string $verb): string
    {
        return '/v1/reservations/' . rawurlencode($reservation) . '/' . $verb;
    }

    private static function given(array $fields): array
    {
        return array_filter($fields, static fn ($value) => $value !== null);
    }
}

// The worker's side.

/** Thrown by Lease::beat: nobody waits for the result any more. */
final class Stopped extends RuntimeException
{
}

/** The right to finish a reservation. */
final class Lease
{
    public bool $lost = false;
    public bool $cancelled = false;
    private float $beaten;

    public function __construct(
        private readonly Client $client,
        public readonly string $reservation,
        public readonly string $token,
        public readonly int $reserved,
        private readonly int $seconds,
    ) {
        $this->beaten = microtime(true);
    }

    /**
     * Says that the work goes on. Call it between its steps, as often as you like; a third of the lease must not pass without.
     *
     * @throws Stopped where the lease is lost, or where the person asked to stop
     */
    public function beat(?float $every = null): void
    {
        if (microtime(true) - $this->beaten < ($every ?? $this->seconds / 3)) {
            return;
        }
        try {
            $this->cancelled = (bool) $this->client->heartbeat($this->reservation, $this->token, $this->seconds)['cancel_requested'];
            $this->beaten = microtime(true);
        } catch (Unavailable) {
            return; // the lease may outlive it
        } catch (Refused $no) {
            $this->lost = true;
            throw new Stopped('the lease is lost', 0, $no);
        }
        if ($this->cancelled) {
            throw new Stopped('the person asked to stop');
        }
    }
}

/** The work failed: `reservation` is how it ended, null: that is not known. The cause is the previous exception. */
final class Failed extends RuntimeException
{
    public function __construct(public readonly ?array $reservation, Throwable $cause)
    {
        parent::__construct($cause->getMessage(), 0, $cause);
    }
}

/**
 * Does what a reservation pays for, and charges it once.
 *
 * $do(Lease) works and delivers the result; what it returns is the amount used, null: all that is reserved. PHP has no thread
 * that could send heartbeats: call $lease->beat() between steps, and make $leaseSeconds (up to 3600) three times the longest step.
 * Give your provider $lease->reservation as idempotency key: it is the same whenever the queue delivers the job again.
 *
 * Returns the reservation as it ended, or null where it is not to be worked on: it has ended before, or the lease was lost.
 * Refused already_running and Unavailable mean: let the queue bring the job again later.
 *
 * @throws Failed where $do threw; everything was given back then
 */
function work(Client $client, string $reservation, callable $do, string $worker = 'worker', int $leaseSeconds = 60): ?array
{
    try {
        $started = $client->start($reservation, $worker, $leaseSeconds);
    } catch (Refused $no) {
        if (in_array($no->reason, ['already_ended', 'not_found'], true)) {
            return null;
        }
        throw $no;
    }
    $lease = new Lease($client, $reservation, $started['lease_token'], $started['reserved'], $leaseSeconds);
    try {
        $used = $do($lease);
    } catch (Throwable $error) {
        $ended = null;
        if (!$lease->lost) {
            try {
                $ended = $client->release($reservation, $lease->token, $lease->cancelled ? 'cancelled' : 'failed');
            } catch (Refused | Unavailable) {
                // It expires by itself then.
            }
        }
        throw new Failed($ended, $error);
    }
    if ($lease->lost) {
        return null;
    }
    if ($used === null && $lease->cancelled) {
        $used = $lease->reserved; // after a request to stop, a figure is asked for
    }
    try {
        return $client->commit($reservation, $lease->token, $used);
    } catch (Refused $no) {
        if (in_array($no->reason, ['already_ended', 'stale_lease'], true)) {
            return null;
        }
        throw $no;
    }
}

/** Whether a reservation proves that nothing was charged for it: say so to the person only then. */
function nothingCharged(array $reservation): bool
{
    return in_array($reservation['state'], ['released', 'expired'], true)
        && $reservation['used'] === 0 && $reservation['late_used'] === 0 && $reservation['debt'] === 0;
}

// Webhooks: Standard Webhooks, standardwebhooks.com.

/** It does not come from Holdfast, or is too old: answer 401. */
final class BadSignature extends RuntimeException
{
}

/**
 * The event of a webhook whose signature is right. $body is what came, as a text; $headers have lower-case names; $secrets are
 * one or two whsec_…. Act on each event id once (see Seen), and answer 2xx then.
 *
 * @param array<string, string> $headers
 */
function verifyWebhook(string|array $secrets, array $headers, string $body, ?int $now = null, int $tolerance = 300): array
{
    [$id, $timestamp, $signatures] = array_map(static fn ($name) => $headers["webhook-$name"] ?? '', ['id', 'timestamp', 'signature']);
    if ($id === '' || !ctype_digit($timestamp)) {
        throw new BadSignature('the headers of a webhook are missing');
    }
    if (abs(($now ?? time()) - (int) $timestamp) > $tolerance) {
        throw new BadSignature("it is too old, or this machine's clock is wrong");
    }
    foreach ((array) $secrets as $secret) {
        $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
        $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
        foreach (explode(' ', $signatures) as $signature) {
            if (hash_equals($expected, $signature)) {
                return json_decode($body, true, 512, JSON_THROW_ON_ERROR);
            }
        }
    }
    throw new BadSignature('the signature is wrong');
}

/**
 * Which events were acted on, in the database that your effects are in. `transaction` runs a function in a transaction and returns
 * what it returns; `add` keeps an id in it, and returns false where it was there already.
 */
final class Seen
{
    public function __construct(private readonly Closure $transaction, private readonly Closure $add)
    {
    }

    /** Acts on an event once; returns whether this was the time. What fails is not seen, so that it comes again. */
    public function once(string $id, callable $act): bool
    {
        return ($this->transaction)(function () use ($id, $act): bool {
            if (!($this->add)($id)) {
                return false;
            }
            $act();
            return true;
        });
    }
}

/** Whether an update of the Bot API is one of those that telegramUpdate is for. */
function aboutStars(array $update): bool
{
    $message = $update['message'] ?? [];
    return isset($update['pre_checkout_query']) || isset($update['subscription']) || isset($message['successful_payment']) || isset($message['refunded_payment']);
}
