package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/store"
)

// AccountName is the name of a Telegram user's account: telegram:42.
func AccountName(user int64) string { return "telegram:" + strconv.FormatInt(user, 10) }

// person is what the bot notes of the person behind an account.
type person struct {
	User int64 `json:"user"`
	// Language is what was last written to the account because Telegram told it. Where the account has another one, somebody
	// has chosen that, and it stays.
	Language string `json:"language,omitempty"`
	Chosen   bool   `json:"chosen,omitempty"` // by /lang
	// Started is when the person first wrote to the bot in private: only from then on may it write to them.
	Started time.Time `json:"started,omitzero"`
	// Gone is since when the bot is blocked; zero: it is not.
	Gone time.Time `json:"gone,omitzero"`
}

// reachable reports whether the bot may write to the person without being asked.
func (p person) reachable() bool { return p.User != 0 && !p.Started.IsZero() && p.Gone.IsZero() }

const personPrefix = "person:"

// personKey is the key of the note of an account's person: by the account's id, since a deleted account has no name.
func (k *Kit) personKey(account string) string {
	return personPrefix + holdfast.AccountIDOf(k.options.Project, account).String()
}

// resolved is whose account it is, and how to speak to them.
type resolved struct {
	account string // as commands name it
	owner   string // as the account is called now: the same for all its names
	reader  message.Reader
}

// resolve finds the account of a person. Where they are met in a chat, an account that is new gets the person's language,
// and one whose language nobody has chosen follows the person's Telegram; otherwise nothing is written.
func (k *Kit) resolve(ctx context.Context, user User, private, met bool) (found resolved, err error) {
	found.account = AccountName(user.ID)
	if k.options.Account != nil {
		if found.account, err = k.options.Account(ctx, user); err != nil {
			return found, fmt.Errorf("name the account of user %d: %w", user.ID, err)
		}
	}
	view, err := k.options.Engine.View(ctx, k.options.Project, found.account)
	if err != nil {
		return found, err
	}
	found.owner = found.account
	if view.Exists && view.Account.DeletedAt.IsZero() {
		found.owner = view.Account.Name
	}
	language := view.Account.Language
	if !met || !view.Account.DeletedAt.IsZero() { // of a deleted account nothing is noted again
		if language == "" {
			language = user.Language
		}
		found.reader = k.reader(language, view.Account.TimeZone)
		return found, nil
	}
	unlock := k.people.lock(found.owner)
	defer unlock()
	before, _, err := note[person](ctx, k, k.personKey(found.owner))
	if err != nil {
		return found, err
	}
	now := before
	now.User = user.ID
	if private {
		now.Gone = time.Time{} // who writes has not blocked the bot
		if now.Started.IsZero() {
			now.Started = k.options.Engine.Now()
		}
	}
	follows := language == "" || language == before.Language && !before.Chosen
	if !view.Exists || follows && user.Language != "" && user.Language != language {
		if language, err = k.introduce(ctx, found.account, user, !view.Exists); err != nil {
			return found, err
		}
		now.Language = language
	}
	if now != before {
		if err := k.keep(ctx, k.personKey(found.owner), now); err != nil {
			return found, err
		}
	}
	found.reader = k.reader(language, view.Account.TimeZone)
	return found, nil
}

// change changes what is noted of a person.
func (k *Kit) change(ctx context.Context, owner string, change func(p *person)) error {
	unlock := k.people.lock(owner)
	defer unlock()
	before, _, err := note[person](ctx, k, k.personKey(owner))
	if err != nil {
		return err
	}
	now := before
	if change(&now); now == before {
		return nil
	}
	return k.keep(ctx, k.personKey(owner), now)
}

// introduce writes the person's language to their account, which it creates where there is none.
func (k *Kit) introduce(ctx context.Context, account string, user User, isNew bool) (language string, err error) {
	put := holdfast.PutAccount{Language: &user.Language}
	if isNew {
		wanted := true
		put.Notices = &wanted // every notice has a button that ends them
	}
	outcome, err := k.submit(ctx, account, holdfast.Command{Do: put})
	switch {
	case err != nil:
		return "", err
	case outcome.Reason == holdfast.Invalid: // a tag that we do not take as one
		none := ""
		put.Language, user.Language = &none, ""
		if outcome, err = k.submit(ctx, account, holdfast.Command{Do: put}); err != nil {
			return "", err
		}
	}
	if outcome.Reason != "" {
		return "", fmt.Errorf("write the settings of account %s: %s", account, outcome.Reason)
	}
	if other := AccountName(user.ID); isNew && other != account {
		// So that payments and other edges that know the person by their id find the same account. Where that name has an
		// account of its own already, merging the two is the author's decision.
		_, err := k.options.Engine.Alias(ctx, engine.Names{Project: k.options.Project, Account: account, Other: other, Actor: k.actor()})
		if err != nil {
			return "", err
		}
	}
	return user.Language, nil
}

// SetLanguage makes the account speak a language that the person has chosen, from now on.
func (t *Turn) SetLanguage(ctx context.Context, language string) error {
	outcome, err := t.kit.submit(ctx, t.Account, holdfast.Command{Do: holdfast.PutAccount{Language: &language}})
	if err != nil {
		return err
	}
	if outcome.Reason != "" {
		return fmt.Errorf("write the language of account %s: %s", t.Account, outcome.Reason)
	}
	t.Reader.Language = language
	return t.kit.change(ctx, t.owner, func(p *person) { p.User, p.Language, p.Chosen = t.User.ID, language, true })
}

func (k *Kit) reader(language, zone string) message.Reader {
	reader := message.Reader{Language: language, Location: k.options.Location}
	if zone != "" {
		if location, err := time.LoadLocation(zone); err == nil {
			reader.Location = location
		}
	}
	return reader
}

// submit has a command decided for an account. A refusal is an outcome.
func (k *Kit) submit(ctx context.Context, account string, command holdfast.Command) (holdfast.Outcome, error) {
	command.ID, command.Project, command.Account, command.Actor = engine.NewID(), k.options.Project, account, k.actor()
	return k.options.Engine.Submit(ctx, command)
}

// actor is what the ledger names where the bot has asked for something.
func (k *Kit) actor() string { return "telegram:" + k.options.Bot }

// note reads what was noted under a key; known is false where nothing was.
func note[T any](ctx context.Context, k *Kit, key string) (value T, known bool, err error) {
	kept, known, err := k.options.Notes.Note(ctx, k.options.Bot, key)
	if err != nil || !known {
		return value, false, err
	}
	if err := json.Unmarshal([]byte(kept.Value), &value); err != nil {
		return value, false, fmt.Errorf("read the note %s: %w", key, err)
	}
	return value, true, nil
}

// keep notes a value under a key.
func (k *Kit) keep(ctx context.Context, key string, value any) error {
	written, err := k.write(key, value)
	if err != nil {
		return err
	}
	return k.options.Notes.PutNote(ctx, written)
}

// keepFirst notes a value unless there is one already.
func (k *Kit) keepFirst(ctx context.Context, key string, value any) (first bool, err error) {
	written, err := k.write(key, value)
	if err != nil {
		return false, err
	}
	return k.options.Notes.AddNote(ctx, written)
}

func (k *Kit) write(key string, value any) (store.Note, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return store.Note{}, errors.Join(fmt.Errorf("write the note %s", key), err)
	}
	return store.Note{Bot: k.options.Bot, Key: key, Value: string(text), At: k.options.Engine.Now()}, nil
}
