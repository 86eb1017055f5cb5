package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// withJob is a reservation whose job waits.
func withJob(n int) *holdfast.Reservation {
	r := reservation(n)
	r.Job = &holdfast.Job{Queue: "image.standard", MaxAttempts: 2, Payload: "{}"}
	return r
}

// running is one whose job a worker has until the second.
func running(n, until int) *holdfast.Reservation {
	r := withJob(n)
	r.State, r.LeaseToken, r.LeaseExpiresAt, r.Attempts = holdfast.Running, "token", at(until), 1
	return r
}

func jobsOf(t *testing.T, o Opened) store.Jobs {
	t.Helper()
	jobs, ok := o.Store.(store.Jobs)
	if !ok {
		t.Fatalf("%T keeps no jobs", o.Store)
	}
	return jobs
}

func claimable(t *testing.T, o Opened, q store.JobQuery) (found []string) {
	t.Helper()
	if q.Project == "" {
		q.Project = project
	}
	if q.Queue == "" {
		q.Queue = "image.standard"
	}
	if q.Limit == 0 {
		q.Limit = 10
	}
	refs, err := jobsOf(t, o).ClaimableJobs(t.Context(), q)
	must(t, err)
	for _, ref := range refs {
		if ref.Project != q.Project || ref.Account.IsZero() {
			t.Errorf("%+v is not of project %s", ref, q.Project)
		}
		found = append(found, ref.ID.String())
	}
	return found
}

func ids(numbers ...int) (list []string) {
	for _, n := range numbers {
		list = append(list, id(n).String())
	}
	return list
}

// jobs of several accounts, in an order that is not that of accounts.
func withJobs(t *testing.T, o Opened) {
	t.Helper()
	ann, bob, cat := fresh("ann"), fresh("bob"), fresh("cat")
	other, doubt, ended := withJob(6), running(7, 30), withJob(8)
	other.Job.Queue = "image.priority"
	doubt.InDoubt = true
	ended.State, ended.EndedAt, ended.Cause = holdfast.Released, at(9), holdfast.CauseFailed
	ann.NewReservations = []*holdfast.Reservation{withJob(5), withJob(2), reservation(10)}
	bob.NewReservations = []*holdfast.Reservation{withJob(4), running(1, 40), other}
	cat.NewReservations = []*holdfast.Reservation{withJob(3), doubt, ended}
	must(t, save(t, o.Store, ann, bob, cat))
}

func claimableJobs(t *testing.T, o Opened) {
	withJobs(t, o)
	same(t, "the queue", claimable(t, o, store.JobQuery{At: at(20)}), ids(2, 3, 4, 5))
	same(t, "before some were made", claimable(t, o, store.JobQuery{At: at(3)}), ids(2, 3))
	same(t, "a microsecond before a lease lapses", claimable(t, o, store.JobQuery{At: at(40).Add(-time.Microsecond)}), ids(2, 3, 4, 5))
	same(t, "when the lease has lapsed", claimable(t, o, store.JobQuery{At: at(40)}), ids(1, 2, 3, 4, 5))
	same(t, "the oldest two", claimable(t, o, store.JobQuery{At: at(40), Limit: 2}), ids(1, 2))
	same(t, "behind them", claimable(t, o, store.JobQuery{At: at(40), Limit: 2, After: store.JobRef{CreatedAt: at(2), ID: id(2)}}), ids(3, 4))
	same(t, "another tier", claimable(t, o, store.JobQuery{At: at(40), Queue: "image.priority"}), ids(6))
	same(t, "another project", claimable(t, o, store.JobQuery{At: at(40), Project: "dev"}), nil)

	queues, err := jobsOf(t, o).Queues(t.Context(), at(20))
	must(t, err)
	same(t, "the queues", queues, []store.Queue{
		{Project: project, Name: "image.priority", Waiting: 1, Oldest: at(6)},
		{Project: project, Name: "image.standard", Waiting: 4, Oldest: at(2)},
	})
	ref := func(name string, n int) store.JobRef { return store.JobRef{Account: accountID(name), ID: id(n)} }
	payloads, err := jobsOf(t, o).Payloads(t.Context(), []store.JobRef{ref("ann", 2), ref("cat", 8), ref("bob", 1), ref("nobody", 1)})
	must(t, err)
	same(t, "payloads", payloads, []string{"{}", "", "{}", ""})

	// One is claimed, one is in doubt, and one has ended.
	taken, doubted, ended := running(2, 50), running(5, 50), withJob(4)
	doubted.InDoubt = true
	ended.State, ended.EndedAt = holdfast.Committed, at(21)
	ann, bob := fresh("ann"), fresh("bob")
	ann.Account.Version, bob.Account.Version = 1, 1
	ann.Reservations, bob.Reservations = []*holdfast.Reservation{taken, doubted}, []*holdfast.Reservation{ended}
	must(t, save(t, o.Store, ann, bob))
	same(t, "what is left", claimable(t, o, store.JobQuery{At: at(20)}), ids(3))
	same(t, "when leases have lapsed", claimable(t, o, store.JobQuery{At: at(60)}), ids(1, 2, 3))
	payloads, err = jobsOf(t, o).Payloads(t.Context(), []store.JobRef{ref("bob", 4), ref("ann", 2)})
	must(t, err)
	same(t, "payloads afterwards", payloads, []string{"", "{}"})

	// What has ended can change again, for example by a refund.
	ended.Refunded = 0
	bob.Account.Version = 2
	must(t, save(t, o.Store, bob))

	// One is given back, and waits for a second.
	given := running(1, 60)
	given.State, given.LeaseExpiresAt = holdfast.Reserved, time.Time{}
	given.Job.Errors, given.Job.Attempts = 1, []holdfast.Attempt{{No: 1, StartedAt: at(20), EndedAt: at(22), End: holdfast.AttemptFailed}}
	bob.Account.Version, bob.Reservations = 3, []*holdfast.Reservation{given}
	must(t, save(t, o.Store, bob))
	same(t, "before the delay is over", claimable(t, o, store.JobQuery{At: at(23).Add(-time.Microsecond)}), ids(3))
	same(t, "after it", claimable(t, o, store.JobQuery{At: at(23)}), ids(1, 3))
}

func lostJobs(t *testing.T, o Opened) {
	ann, bob := fresh("ann"), fresh("bob")
	last := func(n, until int) *holdfast.Reservation {
		r := running(n, until)
		r.Job.Errors = 1
		return r
	}
	ann.NewReservations = []*holdfast.Reservation{last(3, 40), last(1, 40), running(2, 40)}
	bob.NewReservations = []*holdfast.Reservation{last(4, 40), last(5, 50), withJob(6)}
	must(t, save(t, o.Store, ann, bob))
	var found []string
	after := store.JobRef{}
	for range 3 {
		refs, err := jobsOf(t, o).LostJobs(t.Context(), at(40), after, 2)
		must(t, err)
		for _, ref := range refs {
			if ref.Project != project {
				t.Errorf("%+v is of no project", ref)
			}
			found = append(found, ref.ID.String())
			after = ref
		}
	}
	wanted := append(ids(1, 3), ids(4)...)
	if a, b := accountID("ann"), accountID("bob"); strings.Compare(a.String(), b.String()) > 0 {
		wanted = append(ids(4), ids(1, 3)...)
	}
	same(t, "lost jobs, in pages", found, wanted)
	none, err := jobsOf(t, o).LostJobs(t.Context(), at(39), store.JobRef{}, 2)
	must(t, err)
	same(t, "before the leases lapse", none, nil)
}

func rejectedJobs(t *testing.T, o Opened) {
	for what, spoil := range map[string]func(*holdfast.Job){
		"no queue":            func(j *holdfast.Job) { j.Queue = "" },
		"no payload":          func(j *holdfast.Job) { j.Payload = "" },
		"too large a payload": func(j *holdfast.Job) { j.Payload = strings.Repeat("1", holdfast.MaxPayloadBytes+1) },
	} {
		c := fresh(what)
		r := withJob(1)
		spoil(r.Job)
		c.NewReservations = []*holdfast.Reservation{r}
		kind(t, save(t, o.Store, c), store.Rejected)
	}
	same(t, "the queue", claimable(t, o, store.JobQuery{At: at(20)}), nil)
	if all := everythingStored(t, o); len(all) != 0 {
		t.Errorf("%d accounts are stored", len(all))
	}
}
