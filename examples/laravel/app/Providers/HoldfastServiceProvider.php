<?php

declare(strict_types=1);

namespace App\Providers;

use App\Holdfast\Client;
use Illuminate\Support\ServiceProvider;

final class HoldfastServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Client::class, static fn () => new Client(config('holdfast.url'), config('holdfast.key')));
    }
}
