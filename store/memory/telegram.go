package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Telegram = (*Store)(nil)

// chats are what bots keep.
type chats struct {
	updates map[updateKey]*update
	lines   map[lineKey]*line
	notes   map[noteKey]store.Note
	bots    map[string]lease
}

type (
	updateKey struct {
		bot string
		id  int64
	}
	lineKey struct{ bot, name string }
	noteKey struct{ bot, key string }
)

// update is what is kept of one.
type update struct {
	store.Update
	state   store.UpdateState
	endedAt time.Time
}

// line is where updates wait; it is there as long as one does.
type line struct {
	waiting []*update // in order
	dueAt   time.Time // of the first one; where it is claimed, the end of the claim
	claim   string
}

func newChats() chats {
	return chats{updates: map[updateKey]*update{}, lines: map[lineKey]*line{}, notes: map[noteKey]store.Note{}, bots: map[string]lease{}}
}

// KeepUpdates keeps updates that are new.
func (s *Store) KeepUpdates(ctx context.Context, updates []store.Update) (kept []bool, err error) {
	const op = "keep updates"
	kept = make([]bool, len(updates))
	err = s.use(ctx, op, func() error {
		for _, u := range updates {
			switch {
			case u.Bot == "" || u.Line == "":
				return rejected(op, errors.New("update_waits_in_a_line_of_a_bot"))
			case u.Raw == "":
				return rejected(op, errors.New("update_says_something"))
			case u.ReceivedAt.IsZero():
				return rejected(op, errors.New("update_has_its_time"))
			}
		}
		for i, u := range updates {
			id := updateKey{u.Bot, u.ID}
			if s.updates[id] != nil {
				continue
			}
			kept[i] = true
			u.ReceivedAt, u.ClaimedUntil = stored(u.ReceivedAt), stored(u.ClaimedUntil)
			place := lineKey{u.Bot, u.Line}
			l := s.lines[place]
			if l == nil {
				l = &line{dueAt: u.ReceivedAt}
				if u.Claim != "" {
					l.dueAt, l.claim = u.ClaimedUntil, u.Claim
				}
				s.lines[place] = l
			} else {
				u.Claim = ""
				if last := l.waiting[len(l.waiting)-1]; !u.ReceivedAt.After(last.ReceivedAt) {
					u.ReceivedAt = last.ReceivedAt.Add(time.Microsecond)
				}
			}
			u.Attempts = 0
			if u.Claim != "" {
				u.Attempts = 1
			}
			one := &update{Update: u, state: store.UpdateWaiting}
			one.Claim, one.ClaimedUntil = "", time.Time{} // which the line knows
			s.updates[id] = one
			l.waiting = append(l.waiting, one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// ClaimUpdates takes lines whose time has come.
func (s *Store) ClaimUpdates(ctx context.Context, bot, claim string, now, until time.Time, limit int) (claimed []store.Update, err error) {
	err = s.use(ctx, "claim updates", func() error {
		var due []lineKey
		for place, l := range s.lines {
			if place.bot == bot && !l.dueAt.After(now) {
				due = append(due, place)
			}
		}
		slices.SortFunc(due, func(a, b lineKey) int {
			return cmp.Or(s.lines[a].dueAt.Compare(s.lines[b].dueAt), strings.Compare(a.name, b.name))
		})
		for _, place := range due[:min(limit, len(due))] {
			l := s.lines[place]
			l.dueAt, l.claim = stored(until), claim
			first := l.waiting[0]
			first.Attempts++
			u := first.Update
			u.Claim, u.ClaimedUntil = l.claim, l.dueAt
			claimed = append(claimed, u)
		}
		return nil
	})
	return claimed, err
}

// held is a line as long as the claim has it.
func (s *Store) held(bot, name, claim string) (*line, bool) {
	l := s.lines[lineKey{bot, name}]
	return l, l != nil && claim != "" && l.claim == claim
}

// ProlongClaim moves the end of a claim.
func (s *Store) ProlongClaim(ctx context.Context, bot, name, claim string, until time.Time) (held bool, err error) {
	err = s.use(ctx, "prolong a claim", func() error {
		var l *line
		if l, held = s.held(bot, name, claim); held {
			l.dueAt = stored(until)
		}
		return nil
	})
	return held, err
}

// SettleUpdates writes what handling the first updates of lines came to.
func (s *Store) SettleUpdates(ctx context.Context, settled []store.Settled) (written []bool, err error) {
	const op = "settle updates"
	written = make([]bool, len(settled))
	err = s.use(ctx, op, func() error {
		for i := range settled {
			if !slices.Contains([]store.UpdateState{store.UpdateWaiting, store.UpdateDone, store.UpdateFailed}, settled[i].State) {
				return rejected(op, errors.New("update_state_is_known"))
			}
		}
		for i := range settled {
			written[i] = s.settle(&settled[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

func (s *Store) settle(settled *store.Settled) (written bool) {
	l, held := s.held(settled.Bot, settled.Line, settled.Claim)
	if !held || l.waiting[0].ID != settled.ID {
		return false
	}
	l.claim = ""
	if settled.State == store.UpdateWaiting {
		l.dueAt = stored(settled.NextAt)
		return true
	}
	l.waiting[0].state, l.waiting[0].endedAt = settled.State, stored(settled.At)
	if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
		delete(s.lines, lineKey{settled.Bot, settled.Line})
	} else {
		l.dueAt = l.waiting[0].ReceivedAt
	}
	return true
}

// EndClaims makes lines due that others have claimed.
func (s *Store) EndClaims(ctx context.Context, bot, holder string, now time.Time) error {
	return s.use(ctx, "end claims", func() error {
		for place, l := range s.lines {
			if place.bot == bot && l.claim != "" && !strings.HasPrefix(l.claim, holder) && l.dueAt.After(now) {
				l.dueAt = stored(now)
			}
		}
		return nil
	})
}

// UpdateCounts tells of each bot.
func (s *Store) UpdateCounts(ctx context.Context) (counts []store.UpdateCount, err error) {
	err = s.use(ctx, "count updates", func() error {
		bots := map[string]store.UpdateCount{}
		for _, u := range s.updates {
			c := bots[u.Bot]
			c.Bot = u.Bot
			switch u.state {
			case store.UpdateWaiting:
				c.Waiting++
				if c.Oldest.IsZero() || u.ReceivedAt.Before(c.Oldest) {
					c.Oldest = u.ReceivedAt
				}
			case store.UpdateFailed:
				c.Failed++
			}
			bots[u.Bot] = c
		}
		for _, bot := range slices.Sorted(maps.Keys(bots)) {
			if c := bots[bot]; c.Waiting+c.Failed > 0 {
				counts = append(counts, c)
			}
		}
		return nil
	})
	return counts, err
}

// PruneUpdates removes updates that have ended long ago.
func (s *Store) PruneUpdates(ctx context.Context, done, failed time.Time, limit int) (pruned int64, err error) {
	err = s.use(ctx, "prune updates", func() error {
		for id, u := range s.updates {
			if pruned == int64(limit) {
				break
			}
			if u.state == store.UpdateDone && u.endedAt.Before(done) || u.state == store.UpdateFailed && u.endedAt.Before(failed) {
				delete(s.updates, id)
				pruned++
			}
		}
		return nil
	})
	return pruned, err
}

// LeadBot takes the lease of a bot, or prolongs it.
func (s *Store) LeadBot(ctx context.Context, bot, holder string, now, until time.Time) (leads bool, err error) {
	err = s.use(ctx, "take the lease of a bot", func() error {
		l := s.bots[bot]
		if leads = l.holder == holder || !l.until.After(now); leads {
			s.bots[bot] = lease{holder: holder, until: until}
		}
		return nil
	})
	return leads, err
}

// PutNote keeps a note.
func (s *Store) PutNote(ctx context.Context, note store.Note) error {
	const op = "put a note"
	return s.use(ctx, op, func() error {
		if err := checkNote(op, &note); err != nil {
			return err
		}
		s.notes[noteKey{note.Bot, note.Key}] = note
		return nil
	})
}

func checkNote(op string, note *store.Note) error {
	note.At = stored(note.At)
	switch {
	case note.Bot == "" || note.Key == "":
		return rejected(op, errors.New("note_of_a_bot_has_a_key"))
	case note.At.IsZero():
		return rejected(op, errors.New("note_has_its_time"))
	}
	return nil
}

// AddNote keeps a note unless there is one.
func (s *Store) AddNote(ctx context.Context, note store.Note) (added bool, err error) {
	const op = "add a note"
	err = s.use(ctx, op, func() error {
		if err := checkNote(op, &note); err != nil {
			return err
		}
		id := noteKey{note.Bot, note.Key}
		if _, known := s.notes[id]; !known {
			s.notes[id], added = note, true
		}
		return nil
	})
	return added, err
}

// Note finds a note.
func (s *Store) Note(ctx context.Context, bot, key string) (note store.Note, known bool, err error) {
	err = s.use(ctx, "find a note", func() error {
		note, known = s.notes[noteKey{bot, key}]
		return nil
	})
	return note, known, err
}

// DropNote forgets a note.
func (s *Store) DropNote(ctx context.Context, bot, key string) (dropped bool, err error) {
	err = s.use(ctx, "drop a note", func() error {
		id := noteKey{bot, key}
		_, dropped = s.notes[id]
		delete(s.notes, id)
		return nil
	})
	return dropped, err
}

// Notes lists notes.
func (s *Store) Notes(ctx context.Context, bot, prefix, after string, limit int) (notes []store.Note, err error) {
	err = s.use(ctx, "list notes", func() error {
		for _, n := range s.notes {
			if n.Bot == bot && strings.HasPrefix(n.Key, prefix) && n.Key > after {
				notes = append(notes, n)
			}
		}
		slices.SortFunc(notes, func(a, b store.Note) int { return strings.Compare(a.Key, b.Key) })
		notes = slices.Clip(notes[:min(limit, len(notes))])
		return nil
	})
	return notes, err
}

// PruneNotes removes old notes.
func (s *Store) PruneNotes(ctx context.Context, bot, prefix string, old time.Time, limit int) (pruned int64, err error) {
	err = s.use(ctx, "prune notes", func() error {
		for id, n := range s.notes {
			if pruned < int64(limit) && n.Bot == bot && strings.HasPrefix(n.Key, prefix) && n.At.Before(old) {
				delete(s.notes, id)
				pruned++
			}
		}
		return nil
	})
	return pruned, err
}
