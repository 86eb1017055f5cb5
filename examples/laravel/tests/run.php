<?php

/*
 * Runs app/Holdfast/Holdfast.php against the server at API_URL (holdfast serve --dev --webhook-allow 127.0.0.0/8) with the
 * key in API_KEY. It needs PHP alone, with pcntl.
 *
 *     API_URL=http://127.0.0.1:8080 API_KEY=try-me php tests/run.php
 */

declare(strict_types=1);

require __DIR__ . '/../app/Holdfast/Holdfast.php';

use App\Holdfast\BadSignature;
use App\Holdfast\Client;
use App\Holdfast\Failed;
use App\Holdfast\Lease;
use App\Holdfast\Refused;
use App\Holdfast\Seen;
use App\Holdfast\Stopped;
use App\Holdfast\Unavailable;

use function App\Holdfast\aboutStars;
use function App\Holdfast\nothingCharged;
use function App\Holdfast\verifyWebhook;
use function App\Holdfast\work;

set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    if (error_reporting() & $level) {
        throw new ErrorException($text, 0, $level, $file, $line);
    }
    return false;
});

$url = getenv('API_URL');
$key = getenv('API_KEY');
$client = new Client($url, $key);
$children = [];
$failed = 0;
$count = 0;

function test(string $name, callable $do): void
{
    global $failed, $count, $children;
    $count++;
    try {
        $do();
        echo "ok $count - $name\n";
    } catch (Throwable $error) {
        $failed++;
        echo "not ok $count - $name: " . $error::class . ': ' . $error->getMessage() . ' at line ' . $error->getLine() . "\n";
    } finally {
        foreach ($children as $child) {
            posix_kill($child, SIGKILL);
            pcntl_waitpid($child, $status);
        }
        $children = [];
    }
}

function same(mixed $wanted, mixed $got): void
{
    if ($wanted !== $got) {
        throw new LogicException('wanted ' . json_encode($wanted, JSON_UNESCAPED_UNICODE) . ', got ' . json_encode($got, JSON_UNESCAPED_UNICODE));
    }
}

function throws(string $class, callable $do): Throwable
{
    try {
        $do();
    } catch (Throwable $error) {
        same($class, $error::class);
        return $error;
    }
    throw new LogicException("$class was not thrown");
}

function user(): int
{
    return random_int(1, 2 ** 47);
}

function person(): string
{
    return 'telegram:' . user();
}

function credits(string $account): int
{
    global $client;
    foreach ($client->account($account)['balances'] as $balance) {
        if ($balance['unit'] === 'credit') {
            return $balance['available'];
        }
    }
    return 0;
}

function held(string $account, string $key = 'm1', string $feature = 'text.improve'): array
{
    global $client;
    return $client->reserve($account, $feature, $key, 'ru', ['metadata' => ['chat' => '42']]);
}

/** Reads a request: its first line, its headers in lower case, its body. */
function readRequest($connection): array
{
    $first = trim((string) fgets($connection));
    $headers = [];
    while (($line = trim((string) fgets($connection))) !== '') {
        [$name, $value] = explode(':', $line, 2);
        $headers[strtolower($name)] = trim($value);
    }
    $left = (int) ($headers['content-length'] ?? 0);
    $body = $left > 0 ? (string) stream_get_contents($connection, $left) : '';
    return [$first, $headers, $body];
}

function listen(): array
{
    $socket = stream_socket_server('tcp://127.0.0.1:0');
    return [$socket, 'http://' . stream_socket_get_name($socket, false)];
}

/** Serves whole answers of $handle(request), '' to break the connection, in a process of its own until the test ends. */
function serve(callable $handle): string
{
    global $children;
    [$socket, $address] = listen();
    $child = pcntl_fork();
    if ($child === 0) {
        while (true) {
            $connection = @stream_socket_accept($socket, 60);
            if ($connection) {
                fwrite($connection, $handle(readRequest($connection)));
                fclose($connection);
            }
        }
    }
    fclose($socket);
    $children[] = $child;
    return $address;
}

test('two presses of one button are one reservation and one charge', function () use ($client) {
    $account = person();
    [$first, $second] = [held($account), held($account)];
    same($first['id'], $second['id']);
    $done = work($client, $first['id'], fn (Lease $lease) => null);
    same(['committed', 1, 2], [$done['state'], $done['used'], credits($account)]);
});

test('a refusal has a reason for the program and words for the person', function () {
    $account = person();
    held($account, 'm1');
    $no = throws(Refused::class, fn () => held($account, 'm2'));
    same([409, 'too_many_active', 1], [$no->status, $no->reason, $no->body['max_active']]);
    same(true, str_contains($no->detail, 'Дождитесь завершения текущего запроса'));
});

test('a job that the queue delivers twice is charged once', function () use ($client) {
    $account = person();
    $held = held($account);
    $delivered = [];
    foreach ([1, 2] as $_) {
        work($client, $held['id'], function (Lease $lease) use (&$delivered) {
            $delivered[] = $lease->reservation;
        });
    }
    same([[$held['id']], 2], [$delivered, credits($account)]);
});

test('a job that another worker has is left to it', function () use ($client) {
    $held = held(person());
    $client->start($held['id'], 'another');
    same('already_running', throws(Refused::class, fn () => work($client, $held['id'], fn () => exit(1)))->reason);
});

test('work that fails gives everything back', function () use ($client) {
    $account = person();
    $held = held($account);
    $failed = throws(Failed::class, fn () => work($client, $held['id'], fn () => throw new DomainException('the provider is down')));
    same(['released', 'failed', DomainException::class], [$failed->reservation['state'], $failed->reservation['cause'], $failed->getPrevious()::class]);
    same([true, false], [nothingCharged($failed->reservation), nothingCharged(['used' => 1] + $failed->reservation)]);
    same(3, credits($account));
    held($account, 'm2'); // the next one is free to go
});

test('a worker that lost its lease is told and ends nothing', function () use ($client) {
    $held = held(person());
    $failed = throws(Failed::class, fn () => work($client, $held['id'], function (Lease $lease) use ($client, $held) {
        $client->release($held['id'], $lease->token, 'crashed');
        $lease->beat(every: 0);
    }));
    same([null, Stopped::class], [$failed->reservation, $failed->getPrevious()::class]);
    same('crashed', $client->reservation($held['id'])['cause']);
});

test('a person who asks to stop is charged what was used', function () use ($client) {
    $account = person();
    $client->call('PUT', '/v1/accounts/' . $account, []);
    $client->call('POST', "/v1/accounts/$account/grants", ['unit' => 'credit', 'amount' => 10, 'source' => 'promo'], 'give');
    $held = held($account, 'm1', 'image.generate');
    $done = work($client, $held['id'], function (Lease $lease) use ($client, $held) {
        $lease->beat(); // not yet: a third of the lease has not passed
        $client->cancel($held['id']);
        throws(Stopped::class, fn () => $lease->beat(every: 0));
        return 3;
    });
    same(['committed', 3, 2], [$done['state'], $done['used'], $done['returned']]);
});

test('an answer that is lost is asked for again and has one effect', function () use ($client, $url, $key) {
    $seen = [];
    $proxy = serve(function (array $request) use ($url, &$seen) {
        [$first, $headers, $body] = $request;
        [$method, $path] = explode(' ', $first);
        $sent = [];
        foreach ($headers as $name => $value) {
            if (!in_array($name, ['host', 'connection', 'content-length'], true)) {
                $sent[] = "$name: $value";
            }
        }
        $context = stream_context_create(['http' => ['method' => $method, 'header' => $sent, 'content' => $body, 'ignore_errors' => true]]);
        $text = file_get_contents($url . $path, false, $context);
        if (!isset($seen[$path])) {
            $seen[$path] = true;
            return ''; // it was done, and nobody heard of it
        }
        return $http_response_header[0] . "\r\nContent-Length: " . strlen($text) . "\r\n\r\n" . $text;
    });
    $through = new Client($proxy, $key, sleep: fn () => null);
    $account = person();
    $held = $through->reserve($account, 'text.improve', 'm1');
    $started = $through->start($held['id'], 'worker');
    $done = $through->commit($held['id'], $started['lease_token']);
    same([held($account)['id'], 1, 2], [$held['id'], $done['used'], credits($account)]);
});

test('a server that is away, redirects or is cut off is no answer', function () use ($key) {
    $answers = [
        serve(fn () => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"),
        serve(fn () => "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\n{}"),
        serve(fn () => "HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n{}"),
        'http://127.0.0.1:1',
    ];
    foreach ($answers as $address) {
        throws(Unavailable::class, fn () => (new Client($address, $key, retryFor: 0.05, sleep: fn () => null))->reserve(person(), 'text.improve', 'm1'));
    }
});

test('an event is verified and acted on once', function () use ($client) {
    [$socket, $address] = listen();
    $endpoint = $client->call('POST', '/v1/endpoints', ['url' => $address, 'types' => ['reservation.commit']]);
    $rotated = $client->call('POST', "/v1/endpoints/{$endpoint['id']}/rotate", []);
    $account = person();
    $held = held($account);
    work($client, $held['id'], fn () => null);
    do { // until it is not another test's
        $connection = stream_socket_accept($socket, 60);
        [, $headers, $body] = readRequest($connection);
        fwrite($connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        fclose($connection);
    } while (json_decode($body, true)['account'] !== $account);
    $client->call('PATCH', "/v1/endpoints/{$endpoint['id']}", ['paused' => true]);

    // Both secrets sign while one is replaced; either is enough to verify.
    foreach ([$endpoint['secret'], [$rotated['secret']], ['whsec_AAAA', $rotated['secret']]] as $secrets) {
        $event = verifyWebhook($secrets, $headers, $body);
        same(['reservation.commit', $held['id']], [$event['type'], $event['data']['reservation']]);
    }
    $signed = (int) $headers['webhook-timestamp'];
    foreach ([
        'another secret' => ['whsec_AAAA', $headers, $body],
        'another body' => [$endpoint['secret'], $headers, str_replace('reservation.commit', 'reservation.expire', $body)],
        'another id' => [$endpoint['secret'], ['webhook-id' => 'evt_1'] + $headers, $body],
        'too old' => [$endpoint['secret'], $headers, $body, $signed + 301],
        'from the future' => [$endpoint['secret'], $headers, $body, $signed - 301],
        'no headers' => [$endpoint['secret'], [], $body],
        'no signature' => [$endpoint['secret'], ['webhook-signature' => ''] + $headers, $body],
    ] as $arguments) {
        throws(BadSignature::class, fn () => verifyWebhook(...$arguments));
    }

    $table = [];
    $seen = new Seen(function (Closure $do) use (&$table) {
        $before = $table;
        try {
            return $do();
        } catch (Throwable $error) {
            $table = $before;
            throw $error;
        }
    }, function (string $id) use (&$table) {
        $new = !in_array($id, $table, true);
        $table[] = $id;
        return $new;
    });
    throws(DomainException::class, fn () => $seen->once($event['id'], fn () => throw new DomainException('it could not be acted on')));
    $acted = 0;
    $times = [];
    foreach ([1, 2, 3] as $_) {
        $times[] = $seen->once($event['id'], function () use (&$acted) {
            $acted++;
        });
    }
    same([[true, false, false], 1], [$times, $acted]);
});

function wantsToPay(int $from, string $payload): string
{
    return json_encode(['update_id' => 5, 'pre_checkout_query' => [
        'id' => 'q1', 'from' => ['id' => $from, 'first_name' => 'A', 'language_code' => 'ru'], 'currency' => 'XTR', 'total_amount' => 100, 'invoice_payload' => $payload,
    ]]);
}

function hasPaid(int $from, string $payload, string $charge): string
{
    return json_encode(['update_id' => 6, 'message' => [
        'message_id' => 1, 'date' => 1_800_000_000, 'from' => ['id' => $from], 'successful_payment' => [
            'currency' => 'XTR', 'total_amount' => 100, 'invoice_payload' => $payload, 'telegram_payment_charge_id' => $charge, 'provider_payment_charge_id' => '',
        ],
    ]]);
}

test('a payment is forwarded, answered and granted once', function () use ($client) {
    $payer = user();
    $order = $client->telegramOrder('7000001', "telegram:$payer", 'credits_100', language: 'ru');
    same(['createInvoiceLink', [['amount' => 100, 'label' => '100 кредитов']]], [$order['call']['method'], $order['call']['parameters']['prices']]);
    $yes = $client->telegramUpdate('7000001', wantsToPay($payer, $order['payload']));
    same(true, $yes['calls'][0]['parameters']['ok']);
    $no = $client->telegramUpdate('7000001', wantsToPay(1, $order['payload']));
    same(['wrong_person', true], [$no['reason'], str_contains($no['calls'][0]['parameters']['error_message'], 'другому человеку')]);
    $charge = bin2hex(random_bytes(16));
    $changed = array_map(fn () => $client->telegramUpdate('7000001', hasPaid($payer, $order['payload'], $charge))['changed'], [1, 2]);
    same([[true, false], 103], [$changed, credits("telegram:$payer")]);
});

test('a payment is stopped where Holdfast cannot be asked', function () use ($key) {
    $closed = serve(fn () => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}");
    $stranger = serve(fn () => "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
    foreach (['http://127.0.0.1:1', $closed, $stranger] as $address) {
        $away = new Client($address, $key, retryFor: 0.05, preCheckoutWithin: 0.2, sleep: fn () => null);
        $told = $away->telegramUpdate('7000001', wantsToPay(42, 'x'));
        $parameters = $told['calls'][0]['parameters'];
        same(['try_again', 'answerPreCheckoutQuery', 'q1', false], [$told['reason'], $told['calls'][0]['method'], $parameters['pre_checkout_query_id'], $parameters['ok']]);
        // What was paid is told again instead.
        throws($address === $closed ? Refused::class : Unavailable::class, fn () => $away->telegramUpdate('7000001', hasPaid(42, 'x', 'c1')));
    }
});

test('only updates about Stars are forwarded', function () {
    foreach ([wantsToPay(1, 'x'), hasPaid(1, 'x', 'c'), '{"update_id": 1, "subscription": {"state": "active"}}'] as $update) {
        same(true, aboutStars(json_decode($update, true)));
    }
    foreach (['{"update_id": 1, "message": {"text": "hello"}}', '{"update_id": 1, "callback_query": {}}'] as $update) {
        same(false, aboutStars(json_decode($update, true)));
    }
});

echo "1..$count\n";
exit($failed > 0 ? 1 : 0);
