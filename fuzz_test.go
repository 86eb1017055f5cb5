package holdfast_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// FuzzDecide reads bytes as a script: each command is a byte that says what, and some that say how. Nothing that can be
// asked, however hostile, may panic or break what must hold; the world checks that with each command.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("put, grant and reserve, then commit twice and refund"))
	f.Add([]byte{0, 0, 0, 2, 0, 3, 1, 1, 4, 0, 0, 1, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 8, 0, 1, 0})
	f.Add([]byte{4, 0, 1, 1, 2, 0, 5, 0, 0, 1, 13, 4, 12, 0, 7, 0, 0, 1, 0, 0, 0, 4, 0, 1, 2, 2, 0})
	f.Add([]byte{0, 0, 4, 0, 1, 1, 1, 1, 13, 9, 4, 0, 2, 1, 1, 1, 7, 1, 0, 6, 0, 11, 1, 1, 1, 1, 13, 0, 7, 0, 0, 5, 0})
	f.Add([]byte(strings.Repeat("\x02\x00\x0a\x01\x01\x04\x00\x01\x08\x02\x01\x0d\x03", 6)))
	f.Add([]byte(strings.Repeat("\x0e\x03\x01\x02\x00\x00\x0f\x00\x01\x01\x07\x10\x00\x01\x0d\x03", 6)))         // charges, growth, doubt
	f.Add([]byte(strings.Repeat("\x00\x01\x02\x01\x00\x04\x03\x03\x00\x09\x05\x0d\x04\x12\x01\x00\x0d\x03", 6))) // zones, requests to stop
	f.Add([]byte(strings.Repeat("\x04\x00\x00\x02\x05\x00\x00\x09\x00\x0d\x01\x11\x00\x00", 6)))                 // deletion of what runs
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 600 {
			t.Skip("longer says nothing more")
		}
		r := &hostile{world: newWorld(t), bytes: text}
		r.catalog = modelCatalog()
		for len(r.bytes) > 0 {
			r.step()
		}
		r.verify()
	})
}

// hostile is a world that is asked for anything.
type hostile struct {
	*world
	bytes []byte
	made  []holdfast.Command // reserves, for those that name one
	ids   []holdfast.ID
}

func (r *hostile) next() byte {
	if len(r.bytes) == 0 {
		return 0
	}
	b := r.bytes[0]
	r.bytes = r.bytes[1:]
	return b
}

func pick[T any](r *hostile, choices ...T) T { return choices[int(r.next())%len(choices)] }

func (r *hostile) amount() holdfast.Amount {
	return pick(r, 1, 2, 3, 5, 10, 0, -1, -3, 18, 25, 1<<31, holdfast.MaxAmount-1, holdfast.MaxAmount, holdfast.MaxAmount+1, math.MaxInt64, math.MinInt64)
}

func (r *hostile) maybe() *holdfast.Amount {
	if r.next()%2 == 0 {
		return nil
	}
	return pointer(r.amount())
}

func (r *hostile) word() string {
	return pick(r, "a check", "failed", "", " ", "a\x00b", "\xff", "é", strings.Repeat("x", 600))
}

func (r *hostile) token() string { return pick(r, "t1", "t2", "", "a\x00", strings.Repeat("t", 65)) }

func (r *hostile) moment() time.Time {
	return pick(r, time.Time{}, r.now, r.now.Add(time.Minute), r.now.Add(20*time.Minute), r.now.Add(48*time.Hour), r.now.Add(-time.Hour))
}

func (r *hostile) length() time.Duration {
	return pick(r, 0, time.Minute, time.Second, time.Hour, -time.Second, 25*time.Hour, time.Nanosecond, 10*time.Second)
}

func (r *hostile) reservation() (holdfast.ID, holdfast.AccountID) {
	if len(r.ids) == 0 || r.next()%16 == 15 {
		return commandID(1 << 28), holdfast.AccountIDOf(project, "ann")
	}
	i := int(r.next()) % len(r.ids)
	return r.ids[i], r.made[i].AccountID()
}

func (r *hostile) usage() map[string]holdfast.Amount {
	return pick(r, nil, nil, map[string]holdfast.Amount{}, map[string]holdfast.Amount{"in": r.amount(), "out": r.amount()},
		map[string]holdfast.Amount{"out": r.amount(), "none": 1}, map[string]holdfast.Amount{"\x00": 1})
}

func (r *hostile) reserve() holdfast.Reserve {
	return holdfast.Reserve{
		Feature: pick(r, "note", "draw", "file", "chat", "nothing"), Quantity: r.amount(), Usage: r.usage(), TTL: r.length(),
		Surface: pick(r, "", "", "", "bot"), DryRun: r.next()%8 == 7,
	}
}

func (r *hostile) operation() (holdfast.Operation, holdfast.AccountID) {
	switch kind := r.next() % 19; kind {
	case 0:
		return holdfast.PutAccount{
			Blocked: pick(r, nil, nil, pointer(false), pointer(true)), Language: pick(r, nil, pointer("ru"), pointer("r u")),
			TimeZone: pick(r, nil, pointer("Asia/Tokyo"), pointer("America/New_York"), pointer("Africa/Cairo"), pointer(""), pointer("Mars\x00")),
		}, holdfast.AccountID{}
	case 1:
		return holdfast.SetPlan{Plan: pick(r, "pro", "free", "gold", "")}, holdfast.AccountID{}
	case 2:
		return holdfast.AddGrant{
			Unit: pick(r, "credit", "image", "gold", ""), Amount: r.amount(), Source: holdfast.Source(pick(r, "", "purchase", "correction", "allowance")),
			StartsAt: r.moment(), EndsAt: r.moment(), Features: pick(r, nil, nil, []string{"note"}, []string{"nothing"}), Reason: r.word(),
		}, holdfast.AccountID{}
	case 3:
		return holdfast.Adjust{Unit: pick(r, "credit", "image", "gold"), Amount: r.amount(), Reason: r.word()}, holdfast.AccountID{}
	case 4:
		return r.reserve(), holdfast.AccountID{}
	case 14:
		return holdfast.Charge{Reserve: r.reserve(), Amount: r.maybe()}, holdfast.AccountID{}
	case 17:
		return holdfast.DeleteAccount{}, holdfast.AccountID{}
	case 13:
		return nil, holdfast.AccountID{} // time passes
	default:
		return r.onReservation(kind)
	}
}

func (r *hostile) onReservation(kind byte) (holdfast.Operation, holdfast.AccountID) {
	id, account := r.reservation()
	switch kind {
	case 5:
		return holdfast.Start{ReservationID: id, Worker: r.word(), Token: pick(r, "t1", "t2"), Lease: r.length()}, account
	case 6:
		return holdfast.Heartbeat{ReservationID: id, LeaseToken: r.token(), Lease: r.length()}, account
	case 7:
		return holdfast.Commit{ReservationID: id, LeaseToken: r.token(), Amount: r.maybe(), Quantity: r.maybe(), Usage: r.usage()}, account
	case 15:
		return holdfast.Extend{ReservationID: id, LeaseToken: r.token(), TTL: r.length(), Quantity: r.maybe(), Usage: r.usage()}, account
	case 16:
		return holdfast.InDoubt{ReservationID: id, LeaseToken: r.token()}, account
	case 8:
		return holdfast.Release{ReservationID: id, LeaseToken: r.token(), Cause: r.word()}, account
	case 9:
		return holdfast.Cancel{ReservationID: id}, account
	case 10:
		return holdfast.Force{ReservationID: id, End: holdfast.Ending(pick(r, "commit", "release", "")), Amount: r.maybe(), Reason: r.word()}, account
	case 11:
		return holdfast.Refund{ReservationID: id, Amount: r.maybe(), Ended: holdfast.EndedPockets(pick(r, "", "correction", "void", "keep")), Reason: r.word()}, account
	default:
		return holdfast.Expire{}, account
	}
}

func (r *hostile) step() {
	op, account := r.operation()
	if op == nil {
		r.now = r.now.Add(pick(r, time.Second, 15*time.Minute, 5*time.Minute, 24*time.Hour, 49*time.Hour, -time.Hour, time.Nanosecond, 20*time.Minute))
		return
	}
	command := r.command("", "", op)
	command.Target = account
	if account.IsZero() {
		command.Account = pick(r, "ann", "ann", "ann", "bob", "a b", "")
	}
	command.Key = pick(r, "k1", "k2", "k3", "", " ", "\x00", strings.Repeat("k", 256), "k4", "k5", "k6")
	command.RetryRefused = r.next()%4 == 3
	got := r.submit(command)
	if reserved := got.Reservation; got.Reason == "" && !got.Replayed && (got.operation == "reserve" || got.operation == "charge") && !got.DryRun {
		r.ids, r.made = append(r.ids, reserved.ID), append(r.made, command)
	}
}
