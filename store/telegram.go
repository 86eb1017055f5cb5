package store

import (
	"context"
	"time"
)

// Telegram is what chat bots keep beside the accounts: the updates that were taken from the Bot API, and notes. Errors are
// *Error.
type Telegram interface {
	Updates
	Notes
}

// Updates keeps what the Bot API told, until it was handled and for a while after. An update waits in a line, behind what
// was kept in that line before it; one at a time of a line is handled.
type Updates interface {
	// KeepUpdates keeps updates, all or none; those of ids that are kept already, of the same bot, stay as they are. It says
	// of each whether it is new. Ids are a set: no id is too low to be new. One with a Claim makes its line claimed from the
	// beginning, where that line is new too.
	KeepUpdates(ctx context.Context, updates []Update) (kept []bool, err error)
	// ClaimUpdates takes lines of a bot whose time has come, the longest due first, and returns the first update of each,
	// whose attempts it counts. They are the claim's until the given time: nobody else is given an update of these lines
	// before. A claim is a random word, used once, that begins with a word of its holder.
	ClaimUpdates(ctx context.Context, bot, claim string, now, until time.Time, limit int) ([]Update, error)
	// ProlongClaim moves the end of the claim on a line; held is false where it had lapsed and another has the line.
	ProlongClaim(ctx context.Context, bot, line, claim string, until time.Time) (held bool, err error)
	// SettleUpdates writes what handling the first updates of claimed lines came to, and lets the lines go. It says of each
	// whether it was written: it was not where the claim had lapsed and another has the line.
	SettleUpdates(ctx context.Context, settled []Settled) (written []bool, err error)
	// EndClaims makes lines of a bot due that anybody but the holder has claimed.
	EndClaims(ctx context.Context, bot, holder string, now time.Time) error
	// UpdateCounts tells of each bot that keeps updates, in the order of their bytes.
	UpdateCounts(ctx context.Context) ([]UpdateCount, error)
	// PruneUpdates removes up to limit updates: those done before the one time, and those that failed before the other.
	PruneUpdates(ctx context.Context, done, failed time.Time, limit int) (pruned int64, err error)
	// LeadBot takes the lease of a bot until the given time, or prolongs it; leads is false where another holder has it.
	LeadBot(ctx context.Context, bot, holder string, now, until time.Time) (leads bool, err error)
}

// Update is what the Bot API told a bot.
type Update struct {
	Bot  string
	ID   int64  // the Bot API's
	Line string // whose turn it waits for
	Raw  string // JSON, as it came
	// ReceivedAt is in whole microseconds. Within a line it grows: one that is not behind the last one is moved there.
	ReceivedAt time.Time

	Attempts int // begun by now, with the one that is being made
	// Claim and ClaimedUntil say who handles it now; empty: nobody.
	Claim        string
	ClaimedUntil time.Time
}

// UpdateState says where an update is in its life.
type UpdateState string

// The states of updates.
const (
	UpdateWaiting UpdateState = "waiting" // for its turn, or for its next attempt
	UpdateDone    UpdateState = "done"
	UpdateFailed  UpdateState = "failed" // set aside: its line goes on without it
)

// Settled is what handling an update came to.
type Settled struct {
	Bot     string
	ID      int64
	Line    string
	Claim   string
	State   UpdateState
	At      time.Time
	NextAt  time.Time // where it is waiting: of the next attempt, for which the line waits
	Problem string    // what went wrong; empty: nothing
}

// Times are the settled update's end and the time of its next attempt: one of them, the other is zero.
func (s *Settled) Times() (ended, next time.Time) {
	if s.State == UpdateWaiting {
		return time.Time{}, s.NextAt
	}
	return s.At, time.Time{}
}

// UpdateCount is how many updates of a bot are kept.
type UpdateCount struct {
	Bot             string
	Waiting, Failed int64
	Oldest          time.Time // that waits; zero: none
}

// Notes are small things that a bot has to remember over a restart, by key. Keys are unique in a bot.
type Notes interface {
	// PutNote keeps a note in the place of a former one.
	PutNote(ctx context.Context, note Note) error
	// AddNote keeps a note unless there is one of that key.
	AddNote(ctx context.Context, note Note) (added bool, err error)
	Note(ctx context.Context, bot, key string) (note Note, known bool, err error)
	DropNote(ctx context.Context, bot, key string) (dropped bool, err error)
	// Notes lists those whose keys begin with prefix, behind one key, in the order of the keys' bytes.
	Notes(ctx context.Context, bot, prefix, after string, limit int) ([]Note, error)
	// PruneNotes removes up to limit notes whose keys begin with prefix and that are older.
	PruneNotes(ctx context.Context, bot, prefix string, old time.Time, limit int) (pruned int64, err error)
}

// Note is what a bot remembers.
type Note struct {
	Bot, Key, Value string
	At              time.Time // in whole microseconds
}

// BotLease names the lease of whoever polls for a bot.
func BotLease(bot string) string { return "bot:" + bot }

// LastKey is behind every ending that a key can have: a range of keys with one beginning ends there.
const LastKey = "\U0010ffff"
