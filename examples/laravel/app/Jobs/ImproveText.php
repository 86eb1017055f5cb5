<?php

declare(strict_types=1);

namespace App\Jobs;

use App\Holdfast\Client;
use App\Holdfast\Failed;
use App\Holdfast\Lease;
use App\Holdfast\Refused;
use App\Holdfast\Unavailable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Queue\Queueable;
use Illuminate\Support\Facades\Http;

use function App\Holdfast\nothingCharged;
use function App\Holdfast\work;

/** The work that a reservation pays for. The queue may bring it twice: it is charged once. */
final class ImproveText implements ShouldQueue
{
    use Queueable;

    public int $tries = 10;
    public int $timeout = 90;

    public function __construct(public string $reservation, public int $chat, public string $text)
    {
    }

    public function handle(Client $holdfast): void
    {
        try {
            work($holdfast, $this->reservation, function (Lease $lease): void {
                $better = $this->improve($lease);
                $lease->beat();
                $this->tell($better);
            }, worker: gethostname() ?: 'worker', leaseSeconds: 180); // three times the longest step
        } catch (Failed $failed) {
            report($failed);
            if ($failed->reservation !== null && nothingCharged($failed->reservation)) {
                $this->tell('It did not work out. Nothing was charged.');
            }
        } catch (Unavailable) {
            $this->release(10); // the queue brings it again
        } catch (Refused $no) {
            if ($no->reason !== 'already_running') {
                throw $no;
            }
            $this->release(60); // another worker has it; where it dies, its lease lapses
        }
    }

    private function improve(Lease $lease): string
    {
        $answer = Http::timeout(60)->withToken(config('holdfast.provider_key'))
            ->withHeaders(['Idempotency-Key' => $lease->reservation]) // the same job may come twice
            ->post(config('holdfast.provider_url'), ['text' => $this->text]);
        return $answer->throw()->json('text');
    }

    private function tell(string $text): void
    {
        $bot = config('holdfast.telegram_api') . '/bot' . config('holdfast.bot_token');
        Http::post("$bot/sendMessage", ['chat_id' => $this->chat, 'text' => $text])->throw();
    }
}
