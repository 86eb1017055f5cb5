<?php

use Illuminate\Database\Migrations\Migration;
use Illuminate\Database\Schema\Blueprint;
use Illuminate\Support\Facades\Schema;

return new class extends Migration
{
    public function up(): void
    {
        Schema::create('holdfast_events', static function (Blueprint $table): void {
            $table->string('id', 64)->primary(); // of events that were acted on
            $table->timestamp('seen_at')->useCurrent();
        });
    }

    public function down(): void
    {
        Schema::dropIfExists('holdfast_events');
    }
};
