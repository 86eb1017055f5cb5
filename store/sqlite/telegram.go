package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Telegram = (*DB)(nil)

// KeepUpdates keeps updates that are new, row by row.
func (db *DB) KeepUpdates(ctx context.Context, updates []store.Update) (kept []bool, err error) {
	kept = make([]bool, len(updates))
	err = db.write(ctx, "keep updates", func(c *connection) error {
		for i := range updates {
			u := &updates[i]
			changed, err := c.exec(uninterrupted, insertUpdate, u.Bot, u.ID, u.Line, at(u.ReceivedAt), u.Raw)
			if err != nil {
				return err
			}
			if kept[i] = changed == 1; !kept[i] {
				continue
			}
			due := u.ReceivedAt
			if u.Claim != "" {
				due = u.ClaimedUntil
			}
			changed, err = c.exec(uninterrupted, insertLine, u.Bot, u.Line, at(due), textOrNone(u.Claim))
			if err == nil && changed == 1 && u.Claim != "" {
				_, err = c.exec(uninterrupted, countAttempt, u.Bot, u.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// By primary keys and the index waiting_updates. max of two values is NULL where one is, and is refused then.
const (
	insertUpdate = `INSERT INTO telegram_updates (bot, update_id, line, received_at, attempts, state, raw)
	VALUES (?1, ?2, ?3, max(?4, coalesce((SELECT max(received_at) + 1 FROM telegram_updates WHERE bot = ?1 AND line = ?3 AND state = 'waiting'), 0)), 0, 'waiting', ?5)
	ON CONFLICT (bot, update_id) DO NOTHING`
	insertLine   = `INSERT INTO telegram_lines (bot, line, due_at, claim) VALUES (?, ?, ?, ?) ON CONFLICT (bot, line) DO NOTHING`
	countAttempt = `UPDATE telegram_updates SET attempts = attempts + 1 WHERE bot = ? AND update_id = ?`
)

// ClaimUpdates takes lines whose time has come. Where there are none, it does not wait for the writer.
func (db *DB) ClaimUpdates(ctx context.Context, bot, claim string, now, until time.Time, limit int) (claimed []store.Update, err error) {
	const op = "claim updates"
	lines := func(ctx context.Context, c *connection) (due []string, err error) {
		err = c.query(ctx, selectDueLines, func(r *row) error {
			due = append(due, r.text())
			return nil
		}, bot, at(now), int64(limit))
		return due, err
	}
	var due []string
	err = db.snapshot(ctx, op, func(c *connection) (err error) {
		due, err = lines(ctx, c)
		return err
	})
	if err != nil || len(due) == 0 {
		return nil, err
	}
	err = db.write(ctx, op, func(c *connection) error {
		claimed = nil
		due, err := lines(uninterrupted, c)
		if err != nil {
			return err
		}
		for _, line := range due {
			u := store.Update{Bot: bot, Line: line, Claim: claim, ClaimedUntil: time.UnixMicro(until.UnixMicro()).UTC()}
			err := c.query(uninterrupted, selectFirstUpdate, func(r *row) error {
				u.ID, u.Raw, u.ReceivedAt, u.Attempts = r.number(), r.text(), r.at(), int(r.number())+1
				return nil
			}, bot, line)
			if err == nil {
				_, err = c.exec(uninterrupted, countAttempt, bot, u.ID)
			}
			if err == nil {
				_, err = c.exec(uninterrupted, claimLine, at(until), claim, bot, line)
			}
			if err != nil {
				return err
			}
			claimed = append(claimed, u)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// By the index due_lines, the index waiting_updates and a primary key.
const (
	selectDueLines    = `SELECT line FROM telegram_lines WHERE bot = ? AND due_at <= ? ORDER BY due_at LIMIT ?`
	selectFirstUpdate = `SELECT update_id, raw, received_at, attempts FROM telegram_updates
	WHERE bot = ? AND line = ? AND state = 'waiting' ORDER BY received_at LIMIT 1`
	claimLine = `UPDATE telegram_lines SET due_at = ?, claim = ? WHERE bot = ? AND line = ?`
)

// ProlongClaim moves the end of a claim.
func (db *DB) ProlongClaim(ctx context.Context, bot, line, claim string, until time.Time) (held bool, err error) {
	err = db.write(ctx, "prolong a claim", func(c *connection) error {
		changed, err := c.exec(uninterrupted, prolongClaim, at(until), bot, line, claim)
		held = changed == 1
		return err
	})
	return held, err
}

// By primary key.
const prolongClaim = `UPDATE telegram_lines SET due_at = ? WHERE bot = ? AND line = ? AND claim = ?`

// SettleUpdates writes what handling the first updates of lines came to, one by one.
func (db *DB) SettleUpdates(ctx context.Context, settled []store.Settled) (written []bool, err error) {
	written = make([]bool, len(settled))
	err = db.write(ctx, "settle updates", func(c *connection) error {
		for i := range settled {
			if written[i], err = settle(c, &settled[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

func settle(c *connection, s *store.Settled) (written bool, err error) {
	ended, next := s.Times()
	changed, err := c.exec(uninterrupted, settleUpdate, string(s.State), timeOrNone(ended), textOrNone(s.Problem), s.Bot, s.ID, s.Line, s.Claim)
	if err != nil || changed == 0 {
		return false, err
	}
	if _, err = c.exec(uninterrupted, dropEmptyLine, s.Bot, s.Line); err == nil {
		_, err = c.exec(uninterrupted, freeLine, timeOrNone(next), s.Bot, s.Line)
	}
	return true, err
}

// By primary keys and the index waiting_updates.
const (
	settleUpdate = `UPDATE telegram_updates SET state = ?1, ended_at = ?2, problem = ?3 WHERE bot = ?4 AND update_id = ?5 AND state = 'waiting'
	AND EXISTS (SELECT 1 FROM telegram_lines WHERE bot = ?4 AND line = ?6 AND claim = ?7)`
	dropEmptyLine = `DELETE FROM telegram_lines WHERE bot = ?1 AND line = ?2
	AND NOT EXISTS (SELECT 1 FROM telegram_updates WHERE bot = ?1 AND line = ?2 AND state = 'waiting')`
	freeLine = `UPDATE telegram_lines SET claim = NULL, due_at = coalesce(?1,
	(SELECT min(received_at) FROM telegram_updates WHERE bot = ?2 AND line = ?3 AND state = 'waiting')) WHERE bot = ?2 AND line = ?3`
)

// EndClaims makes lines due that others have claimed.
func (db *DB) EndClaims(ctx context.Context, bot, holder string, now time.Time) error {
	return db.write(ctx, "end claims", func(c *connection) error {
		_, err := c.exec(uninterrupted, endClaims, at(now), bot, holder)
		return err
	})
}

// By the index due_lines.
const endClaims = `UPDATE telegram_lines SET due_at = ?1 WHERE bot = ?2 AND due_at > ?1 AND claim IS NOT NULL AND substr(claim, 1, length(?3)) <> ?3`

// UpdateCounts tells of each bot.
func (db *DB) UpdateCounts(ctx context.Context) (counts []store.UpdateCount, err error) {
	err = db.snapshot(ctx, "count updates", func(c *connection) error {
		return c.query(ctx, selectUpdateCounts, func(r *row) error {
			counts = append(counts, store.UpdateCount{Bot: r.text(), Waiting: r.number(), Failed: r.number(), Oldest: r.timeOrNone()})
			return nil
		})
	})
	return counts, err
}

// By the partial indexes waiting_updates and failed_updates, from end to end: there are few of both.
const selectUpdateCounts = `SELECT bot, sum(waiting), sum(failed), min(oldest) FROM (
		SELECT bot, count(*) AS waiting, 0 AS failed, min(received_at) AS oldest FROM telegram_updates WHERE state = 'waiting' GROUP BY bot
		UNION ALL SELECT bot, 0, count(*), NULL FROM telegram_updates WHERE state = 'failed' GROUP BY bot
	) GROUP BY bot ORDER BY bot`

// PruneUpdates removes updates that have ended long ago.
func (db *DB) PruneUpdates(ctx context.Context, done, failed time.Time, limit int) (pruned int64, err error) {
	err = db.write(ctx, "prune updates", func(c *connection) error {
		pruned, err = c.exec(uninterrupted, pruneUpdates, at(done), at(failed), int64(limit))
		return err
	})
	return pruned, err
}

// By the index ended_updates; those that failed are few.
const pruneUpdates = `DELETE FROM telegram_updates WHERE rowid IN (
	SELECT rowid FROM telegram_updates WHERE ended_at < max(?1, ?2) AND (state = 'done' AND ended_at < ?1 OR state = 'failed' AND ended_at < ?2)
	ORDER BY ended_at LIMIT ?3)`

// LeadBot takes the lease of a bot, or prolongs it.
func (db *DB) LeadBot(ctx context.Context, bot, holder string, now, until time.Time) (leads bool, err error) {
	err = db.write(ctx, "take the lease of a bot", func(c *connection) error {
		changed, err := c.exec(uninterrupted, takeLease, store.BotLease(bot), holder, at(until), at(now))
		leads = changed == 1
		return err
	})
	return leads, err
}

// PutNote keeps a note in the place of a former one.
func (db *DB) PutNote(ctx context.Context, n store.Note) error {
	return db.write(ctx, "put a note", func(c *connection) error {
		_, err := c.exec(uninterrupted, putNote, n.Bot, n.Key, at(n.At), n.Value)
		return err
	})
}

// By primary key.
const (
	addNote = `INSERT INTO telegram_notes (bot, key, at, value) VALUES (?, ?, ?, ?) ON CONFLICT (bot, key) DO NOTHING`
	putNote = `INSERT INTO telegram_notes (bot, key, at, value) VALUES (?, ?, ?, ?)
	ON CONFLICT (bot, key) DO UPDATE SET at = excluded.at, value = excluded.value`
)

// AddNote keeps a note unless there is one.
func (db *DB) AddNote(ctx context.Context, n store.Note) (added bool, err error) {
	err = db.write(ctx, "add a note", func(c *connection) error {
		changed, err := c.exec(uninterrupted, addNote, n.Bot, n.Key, at(n.At), n.Value)
		added = changed == 1
		return err
	})
	return added && err == nil, err
}

// Note finds a note.
func (db *DB) Note(ctx context.Context, bot, key string) (note store.Note, known bool, err error) {
	err = db.snapshot(ctx, "find a note", func(c *connection) error {
		return c.query(ctx, selectNote, func(r *row) error {
			note, known = readNote(r), true
			return nil
		}, bot, key)
	})
	return note, known, err
}

func readNote(r *row) store.Note {
	return store.Note{Bot: r.text(), Key: r.text(), At: r.at(), Value: r.text()}
}

// By primary key.
const selectNote = `SELECT bot, key, at, value FROM telegram_notes WHERE bot = ? AND key = ?`

// DropNote forgets a note.
func (db *DB) DropNote(ctx context.Context, bot, key string) (dropped bool, err error) {
	err = db.write(ctx, "drop a note", func(c *connection) error {
		changed, err := c.exec(uninterrupted, deleteNote, bot, key)
		dropped = changed == 1
		return err
	})
	return dropped && err == nil, err
}

// By primary key.
const deleteNote = `DELETE FROM telegram_notes WHERE bot = ? AND key = ?`

// Notes lists notes.
func (db *DB) Notes(ctx context.Context, bot, prefix, after string, limit int) (notes []store.Note, err error) {
	err = db.snapshot(ctx, "list notes", func(c *connection) error {
		return c.query(ctx, selectNotes, func(r *row) error {
			notes = append(notes, readNote(r))
			return nil
		}, bot, prefix, prefix+store.LastKey, after, int64(limit))
	})
	return notes, err
}

// By primary key, whose order is that of the bytes.
const selectNotes = `SELECT bot, key, at, value FROM telegram_notes
	WHERE bot = ?1 AND key >= ?2 AND key < ?3 AND key > ?4 ORDER BY key LIMIT ?5`

// PruneNotes removes old notes.
func (db *DB) PruneNotes(ctx context.Context, bot, prefix string, old time.Time, limit int) (pruned int64, err error) {
	err = db.write(ctx, "prune notes", func(c *connection) error {
		pruned, err = c.exec(uninterrupted, pruneNotes, bot, prefix, prefix+store.LastKey, at(old), int64(limit))
		return err
	})
	return pruned, err
}

// By primary key: the notes of a prefix, from end to end.
const pruneNotes = `DELETE FROM telegram_notes WHERE rowid IN (
	SELECT rowid FROM telegram_notes WHERE bot = ?1 AND key >= ?2 AND key < ?3 AND at < ?4 LIMIT ?5)`
