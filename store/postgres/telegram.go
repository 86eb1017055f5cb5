package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Telegram = (*DB)(nil)

// KeepUpdates keeps updates that are new. Its first statement locks their lines, or makes them; the second sees all that
// others have put in there before, and puts itself behind it.
func (db *DB) KeepUpdates(ctx context.Context, updates []store.Update) ([]bool, error) {
	if len(updates) == 0 {
		return nil, nil
	}
	var (
		bots, lines, raws, claims list[string]
		ids, places               list[int64]
		received, untils          list[moment]
	)
	last := map[string]time.Time{}
	for i := range updates {
		u := updates[i]
		if behind := last[u.Line]; !behind.IsZero() && !u.ReceivedAt.After(behind) {
			u.ReceivedAt = behind.Add(time.Microsecond)
		}
		last[u.Line] = u.ReceivedAt
		bots, lines, raws, claims = append(bots, u.Bot), append(lines, u.Line), append(raws, u.Raw), append(claims, u.Claim)
		ids, places = append(ids, u.ID), append(places, int64(i))
		received, untils = append(received, moment(u.ReceivedAt)), append(untils, moment(u.ClaimedUntil))
	}
	type name struct {
		bot string
		id  int64
	}
	added := map[name]bool{}
	p := &pipeline{}
	p.then(lockLines, bots, lines, ids, received, claims, untils, places)
	p.read(func(rows pgx.Rows) error {
		var n name
		err := scan(rows, &n.bot, &n.id)
		added[n] = true
		return err
	}, insertUpdates, bots, lines, ids, received, claims, raws, places)
	if err := db.transact(ctx, "keep updates", p); err != nil {
		return nil, err
	}
	kept := make([]bool, len(updates))
	for i := range updates {
		n := name{updates[i].Bot, updates[i].ID}
		kept[i] = added[n]
		delete(added, n) // one that is given twice is new once
	}
	return kept, nil
}

// By primary keys, in one order for all, so that two who keep updates wait for each other and do not lock each other out. A
// line that stays empty, because the same update came twice at once, is removed when it is claimed.
var lockLines = `INSERT INTO holdfast.telegram_lines AS l (bot, line, due_at, claim)
	SELECT DISTINCT ON (g.bot COLLATE "C", g.line COLLATE "C") g.bot, g.line, CASE WHEN g.claim = '' THEN g.received_at ELSE g.until END, NULLIF(g.claim, '')
	FROM ` + given(`bot text, line text, update_id bigint, received_at timestamptz, claim text, until timestamptz, place bigint`) + ` g
	WHERE NOT EXISTS (SELECT FROM holdfast.telegram_updates u WHERE u.bot = g.bot AND u.update_id = g.update_id OFFSET 0)
	ORDER BY g.bot COLLATE "C", g.line COLLATE "C", g.place
	ON CONFLICT (bot, line) DO UPDATE SET line = excluded.line`

// By the index waiting_updates and primary keys. Those of one line that come together grow, and so they do behind the last.
var insertUpdates = `INSERT INTO holdfast.telegram_updates (bot, update_id, line, received_at, attempts, state, raw)
	SELECT g.bot, g.update_id, g.line,
		greatest(g.received_at, last.received_at + row_number() OVER (PARTITION BY g.bot, g.line ORDER BY g.place) * interval '1 microsecond'),
		CASE WHEN l.claim = g.claim THEN 1 ELSE 0 END, 'waiting', g.raw
	FROM ` + given(`bot text, line text, update_id bigint, received_at timestamptz, claim text, raw text, place bigint`) + ` g
	LEFT JOIN LATERAL (SELECT s.claim FROM holdfast.telegram_lines s WHERE s.bot = g.bot AND s.line = g.line OFFSET 0) l ON true
	LEFT JOIN LATERAL (
		SELECT u.received_at FROM holdfast.telegram_updates u WHERE u.bot = g.bot AND u.line = g.line AND u.state = 'waiting'
		ORDER BY u.received_at DESC LIMIT 1
	) last ON true
	ORDER BY g.bot, g.line, g.place
	ON CONFLICT (bot, update_id) DO NOTHING RETURNING bot, update_id`

// ClaimUpdates takes lines whose time has come, passing over those that somebody else is taking. What waits in them is read
// by a statement of its own, after the lock: until then another may have settled it.
func (db *DB) ClaimUpdates(ctx context.Context, bot, claim string, now, until time.Time, limit int) ([]store.Update, error) {
	var claimed []store.Update
	p := &pipeline{}
	p.then(claimLines, bot, moment(now), moment(until), claim, int64(limit))
	p.then(dropEmptyLines, bot, moment(until), claim)
	p.read(func(rows pgx.Rows) error {
		u := store.Update{Bot: bot, Claim: claim, ClaimedUntil: time.UnixMicro(until.UnixMicro()).UTC()}
		err := scan(rows, &u.ID, &u.Line, &u.Raw, (*moment)(&u.ReceivedAt), &u.Attempts)
		claimed = append(claimed, u)
		return err
	}, countAttempts, bot, moment(until), claim)
	if err := db.transact(ctx, "claim updates", p); err != nil {
		return nil, err
	}
	return claimed, nil
}

// By the index due_lines, and what was found by its place. The end of the claim finds what the first statement has claimed.
// bot || ” keeps the planner from taking the primary key, whose first column most rows have in common.
const (
	claimLines = `WITH due AS MATERIALIZED (
		SELECT d.ctid AS place FROM holdfast.telegram_lines d WHERE d.bot || '' = $1::text AND d.due_at <= $2::timestamptz
		ORDER BY d.due_at LIMIT $5::bigint FOR UPDATE SKIP LOCKED
	)
	UPDATE holdfast.telegram_lines l SET due_at = $3::timestamptz, claim = $4::text FROM due WHERE l.ctid = due.place`
	dropEmptyLines = `DELETE FROM holdfast.telegram_lines l WHERE l.bot || '' = $1::text AND l.due_at = $2::timestamptz AND l.claim = $3::text
	AND NOT EXISTS (SELECT FROM holdfast.telegram_updates u WHERE u.bot = l.bot AND u.line = l.line AND u.state = 'waiting' OFFSET 0)`
	countAttempts = `WITH first AS MATERIALIZED (
		SELECT u.place FROM holdfast.telegram_lines l
		CROSS JOIN LATERAL (
			SELECT w.ctid AS place FROM holdfast.telegram_updates w WHERE w.bot = l.bot AND w.line = l.line AND w.state = 'waiting'
			ORDER BY w.received_at LIMIT 1
		) u
		WHERE l.bot || '' = $1::text AND l.due_at = $2::timestamptz AND l.claim = $3::text
	)
	UPDATE holdfast.telegram_updates u SET attempts = u.attempts + 1 FROM first WHERE u.ctid = first.place
	RETURNING u.update_id, u.line, u.raw, u.received_at, u.attempts`
)

// ProlongClaim moves the end of a claim.
func (db *DB) ProlongClaim(ctx context.Context, bot, line, claim string, until time.Time) (held bool, err error) {
	changed, err := db.write(ctx, "prolong a claim", prolongClaim, moment(until), bot, line, claim)
	return changed == 1, err
}

// By primary key.
const prolongClaim = `UPDATE holdfast.telegram_lines SET due_at = $1::timestamptz WHERE bot = $2::text AND line = $3::text AND claim = $4::text`

// SettleUpdates writes what handling the first updates of lines came to. Each line is locked first, so that nothing is put in
// there unseen, and all in the order of KeepUpdates.
func (db *DB) SettleUpdates(ctx context.Context, settled []store.Settled) ([]bool, error) {
	if len(settled) == 0 {
		return nil, nil
	}
	order := make([]int, len(settled))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(settled[a].Bot, settled[b].Bot), strings.Compare(settled[a].Line, settled[b].Line))
	})
	written := make([]bool, len(settled))
	p := &pipeline{}
	for _, i := range order {
		s := &settled[i]
		ended, next := s.Times()
		p.read(func(pgx.Rows) error {
			written[i] = true
			return nil
		}, lockLine, s.Bot, s.Line, s.Claim, s.ID)
		p.then(settleUpdate, s.Bot, s.Line, s.Claim, s.ID, string(s.State), moment(ended), s.Problem)
		p.then(dropEmptyLine, s.Bot, s.Line, s.Claim)
		p.then(freeLine, s.Bot, s.Line, s.Claim, moment(next))
	}
	if err := db.transact(ctx, "settle updates", p); err != nil {
		return nil, err
	}
	return written, nil
}

// By primary keys and the index waiting_updates.
const (
	lockLine = `SELECT FROM holdfast.telegram_lines l WHERE l.bot = $1::text AND l.line = $2::text AND l.claim = $3::text
	AND EXISTS (SELECT FROM holdfast.telegram_updates u WHERE u.bot = l.bot AND u.update_id = $4::bigint AND u.ended_at IS NULL OFFSET 0) FOR UPDATE`
	settleUpdate = `UPDATE holdfast.telegram_updates SET state = $5::text, ended_at = $6::timestamptz, problem = NULLIF($7::text, '')
	WHERE bot = $1::text AND update_id = $4::bigint AND ended_at IS NULL
	AND EXISTS (SELECT FROM holdfast.telegram_lines l WHERE l.bot = $1::text AND l.line = $2::text AND l.claim = $3::text OFFSET 0)`
	dropEmptyLine = `DELETE FROM holdfast.telegram_lines l WHERE l.bot = $1::text AND l.line = $2::text AND l.claim = $3::text
	AND NOT EXISTS (SELECT FROM holdfast.telegram_updates u WHERE u.bot = l.bot AND u.line = l.line AND u.state = 'waiting' OFFSET 0)`
	freeLine = `UPDATE holdfast.telegram_lines l SET claim = NULL, due_at = coalesce($4::timestamptz, (
		SELECT u.received_at FROM holdfast.telegram_updates u WHERE u.bot = l.bot AND u.line = l.line AND u.state = 'waiting' ORDER BY u.received_at LIMIT 1))
	WHERE l.bot = $1::text AND l.line = $2::text AND l.claim = $3::text`
)

// EndClaims makes lines due that others have claimed.
func (db *DB) EndClaims(ctx context.Context, bot, holder string, now time.Time) error {
	_, err := db.write(ctx, "end claims", endClaims, bot, holder, moment(now))
	return err
}

// By the index due_lines: what is claimed is not due, and little else is.
const endClaims = `UPDATE holdfast.telegram_lines SET due_at = $3::timestamptz
	WHERE bot = $1::text AND due_at > $3::timestamptz AND claim IS NOT NULL AND NOT starts_with(claim, $2::text)`

// UpdateCounts tells of each bot.
func (db *DB) UpdateCounts(ctx context.Context) (counts []store.UpdateCount, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var c store.UpdateCount
		err := scan(rows, &c.Bot, &c.Waiting, &c.Failed, (*moment)(&c.Oldest))
		counts = append(counts, c)
		return err
	}, selectUpdateCounts)
	if err := db.snapshot(ctx, "count updates", p); err != nil {
		return nil, err
	}
	return counts, nil
}

// By the partial indexes waiting_updates and failed_updates, from end to end: there are few of both.
const selectUpdateCounts = `SELECT bot, sum(waiting)::bigint, sum(failed)::bigint, min(oldest) FROM (
		SELECT bot, count(*) AS waiting, 0 AS failed, min(received_at) AS oldest FROM holdfast.telegram_updates WHERE state = 'waiting' GROUP BY bot
		UNION ALL SELECT bot, 0, count(*), NULL FROM holdfast.telegram_updates WHERE state = 'failed' GROUP BY bot
	) c GROUP BY bot ORDER BY bot COLLATE "C"`

// PruneUpdates removes updates that have ended long ago.
func (db *DB) PruneUpdates(ctx context.Context, done, failed time.Time, limit int) (int64, error) {
	return db.write(ctx, "prune updates", pruneUpdates, moment(done), moment(failed), int64(limit))
}

// By the index ended_updates; those that failed are few. A second one that prunes passes over what is being pruned.
const pruneUpdates = `WITH past AS MATERIALIZED (
		SELECT u.ctid AS place FROM holdfast.telegram_updates u WHERE u.ended_at < greatest($1::timestamptz, $2::timestamptz)
		AND (u.state = 'done' AND u.ended_at < $1::timestamptz OR u.state = 'failed' AND u.ended_at < $2::timestamptz)
		ORDER BY u.ended_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED
	)
	DELETE FROM holdfast.telegram_updates u USING past WHERE u.ctid = past.place`

// LeadBot takes the lease of a bot, or prolongs it.
func (db *DB) LeadBot(ctx context.Context, bot, holder string, now, until time.Time) (leads bool, err error) {
	changed, err := db.write(ctx, "take the lease of a bot", takeLease, store.BotLease(bot), holder, moment(now), moment(until))
	return changed == 1, err
}

// PutNote keeps a note in the place of a former one.
func (db *DB) PutNote(ctx context.Context, n store.Note) error {
	_, err := db.write(ctx, "put a note", putNote, n.Bot, n.Key, moment(n.At), n.Value)
	return err
}

// By primary key.
const (
	addNote = `INSERT INTO holdfast.telegram_notes (bot, key, at, value) VALUES ($1::text, $2::text, $3::timestamptz, $4::text)
	ON CONFLICT (bot, key) DO NOTHING`
	putNote = `INSERT INTO holdfast.telegram_notes (bot, key, at, value) VALUES ($1::text, $2::text, $3::timestamptz, $4::text)
	ON CONFLICT (bot, key) DO UPDATE SET at = excluded.at, value = excluded.value`
)

// AddNote keeps a note unless there is one.
func (db *DB) AddNote(ctx context.Context, n store.Note) (added bool, err error) {
	changed, err := db.write(ctx, "add a note", addNote, n.Bot, n.Key, moment(n.At), n.Value)
	return changed == 1, err
}

// Note finds a note.
func (db *DB) Note(ctx context.Context, bot, key string) (note store.Note, known bool, err error) {
	if !storable(bot) || !storable(key) {
		return note, false, nil
	}
	known, err = db.one(ctx, "find a note", notePlaces(&note), selectNote, bot, key)
	return note, known, err
}

func notePlaces(n *store.Note) []any { return []any{&n.Bot, &n.Key, (*moment)(&n.At), &n.Value} }

// By primary key.
const selectNote = `SELECT bot, key, at, value FROM holdfast.telegram_notes WHERE bot = $1::text AND key = $2::text`

// DropNote forgets a note.
func (db *DB) DropNote(ctx context.Context, bot, key string) (dropped bool, err error) {
	if !storable(bot) || !storable(key) {
		return false, nil
	}
	changed, err := db.write(ctx, "drop a note", deleteNote, bot, key)
	return changed == 1, err
}

// By primary key.
const deleteNote = `DELETE FROM holdfast.telegram_notes WHERE bot = $1::text AND key = $2::text`

// Notes lists notes.
func (db *DB) Notes(ctx context.Context, bot, prefix, after string, limit int) (notes []store.Note, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var n store.Note
		err := scan(rows, notePlaces(&n)...)
		notes = append(notes, n)
		return err
	}, selectNotes, bot, prefix, prefix+store.LastKey, after, int64(limit))
	if err := db.snapshot(ctx, "list notes", p); err != nil {
		return nil, err
	}
	return notes, nil
}

// By primary key.
const selectNotes = `SELECT bot, key, at, value FROM holdfast.telegram_notes
	WHERE bot = $1::text AND key >= $2::text COLLATE "C" AND key < $3::text COLLATE "C" AND key > $4::text COLLATE "C" ORDER BY key LIMIT $5::bigint`

// PruneNotes removes old notes.
func (db *DB) PruneNotes(ctx context.Context, bot, prefix string, old time.Time, limit int) (int64, error) {
	return db.write(ctx, "prune notes", pruneNotes, bot, prefix, prefix+store.LastKey, moment(old), int64(limit))
}

// By primary key: the notes of a prefix, from end to end.
const pruneNotes = `WITH past AS MATERIALIZED (
		SELECT n.ctid AS place FROM holdfast.telegram_notes n
		WHERE n.bot = $1::text AND n.key >= $2::text COLLATE "C" AND n.key < $3::text COLLATE "C" AND n.at < $4::timestamptz
		LIMIT $5::bigint FOR UPDATE SKIP LOCKED
	)
	DELETE FROM holdfast.telegram_notes n USING past WHERE n.ctid = past.place`
