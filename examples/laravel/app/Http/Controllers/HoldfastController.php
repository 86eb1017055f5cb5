<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Holdfast\BadSignature;
use App\Holdfast\Client;
use App\Holdfast\Seen;
use Closure;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Http;

use function App\Holdfast\nothingCharged;
use function App\Holdfast\verifyWebhook;

/** Holdfast's webhook, for reservation.expire: nobody came back, and the person is told. */
final class HoldfastController
{
    public function __invoke(Request $request, Client $holdfast): Response
    {
        try {
            $headers = array_map(static fn (array $values) => (string) $values[0], $request->headers->all());
            $event = verifyWebhook(config('holdfast.webhook_secrets'), $headers, $request->getContent());
        } catch (BadSignature) {
            abort(401);
        }
        $seen = new Seen(
            static fn (Closure $do) => DB::transaction($do),
            static fn (string $id) => DB::table('holdfast_events')->insertOrIgnore(['id' => $id]) === 1,
        );
        $seen->once($event['id'], static function () use ($event, $holdfast): void {
            if ($event['type'] !== 'reservation.expire') {
                return;
            }
            $ended = $holdfast->reservation($event['data']['reservation']);
            if (nothingCharged($ended) && isset($ended['metadata']['chat'])) {
                $bot = config('holdfast.telegram_api') . '/bot' . config('holdfast.bot_token');
                Http::post("$bot/sendMessage", ['chat_id' => (int) $ended['metadata']['chat'], 'text' => 'It took too long. Nothing was charged.'])->throw();
            }
        });
        return response()->noContent(200);
    }
}
