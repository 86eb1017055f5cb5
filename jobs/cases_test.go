package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/jobs"
)

// patient puts an account on the plan whose jobs wait in the other queue.
func (s *shop) patient(account string) {
	s.t.Helper()
	s.has(account, 100)
	if o := s.submit(holdfast.Command{Account: account, Do: holdfast.SetPlan{Plan: "patient"}}); o.Refused() {
		s.t.Fatal(o.Reason)
	}
}

// Case 55: who does not pay for priority is not starved by those who do, for each queue has workers of its own.
func TestAQueueThatIsNeverEmptyHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 5000)
		s.patient("bob")
		handled := 0
		s.work(&jobs.Worker{Name: "busy", Handle: func(context.Context, *jobs.Job) error {
			handled++
			s.job("ann", fmt.Sprint("next", handled), 0)
			time.Sleep(time.Second)
			return nil
		}})
		for i := range 10 {
			s.job("ann", fmt.Sprint("m", i), 0)
		}
		s.work(&jobs.Worker{Name: "other", Queue: patientQueue, Handle: func(context.Context, *jobs.Job) error { return nil }})
		time.Sleep(30 * time.Second)
		made := s.job("bob", "m", 0)
		synctest.Wait()
		s.is(made, "committed used=5 cause= crashes=0 errors=0 [committed ]")
		queues, err := s.store.Queues(context.Background(), time.Now())
		if err != nil || len(queues) != 1 || queues[0].Name != queue || queues[0].Waiting < 10 {
			t.Errorf("waiting are %+v (%v)", queues, err)
		}
		s.verify()
	})
}

// Case 55: a job that was given back keeps its tier and its age, whatever its account has bought since, and does not expire
// because it has waited.
func TestAJobThatWasGivenBackKeepsItsPlaceAndItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.patient("bob")
		claim := func() engine.Claimed {
			t.Helper()
			claimed, err := s.Claim(context.Background(), engine.ClaimRequest{Project: "p", Claim: holdfast.Claim{Queue: patientQueue, Worker: "w"}})
			if err != nil || len(claimed) != 1 {
				t.Fatalf("claimed %v (%v)", claimed, err)
			}
			return claimed[0]
		}
		giveBack := func(job engine.Claimed) {
			s.submit(holdfast.Command{Target: job.Outcome.Owner.ID, Do: holdfast.Release{ReservationID: job.Outcome.Reservation.ID, LeaseToken: job.Outcome.Lease.Token, Retry: true}})
		}
		old := s.job("bob", "old", 0)
		time.Sleep(4 * time.Minute) // of the five that it may wait
		young := s.job("bob", "young", 0)
		job := claim()
		if job.Payload != `"old"` {
			t.Fatalf("claimed %s", job.Payload)
		}
		giveBack(job)
		s.submit(holdfast.Command{Account: "bob", Do: holdfast.SetPlan{Plan: "free"}})
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if job = claim(); job.Payload != `"old"` || job.Outcome.Reservation.Job.Queue != patientQueue {
			t.Errorf("claimed %s in %s", job.Payload, job.Outcome.Reservation.Job.Queue)
		}
		giveBack(job)
		if job = claim(); job.Payload != `"young"` { // nobody waits for the delay of another
			t.Errorf("claimed %s", job.Payload)
		}
		time.Sleep(2 * time.Second)
		s.is(old, "reserved used=0 cause= crashes=0 errors=2 [failed failed] [failed failed]")
		if job = claim(); job.Payload != `"old"` {
			t.Errorf("claimed %s", job.Payload)
		}
		s.is(young, "running used=0 cause= crashes=0 errors=0 [ ]")
		s.verify()
	})
}

// timesOut is a provider behind a gateway that gives up on the first request of every job, and answers the next one.
type timesOut map[string]int

func (asked timesOut) RoundTrip(r *http.Request) (*http.Response, error) {
	id := r.Header.Get("Idempotency-Key")
	asked[id]++
	status := http.StatusOK
	if asked[id] == 1 {
		status = http.StatusGatewayTimeout
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// Case 12: whether the provider has worked is in doubt. What the probe finds out settles it; what it does not find out stays
// held, is nobody's to try again, and comes back when its time is over.
func TestDoubtIsSettledByAProbeAndOtherwiseByTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		worked, idle, silent := s.job("ann", "worked", 3), s.job("ann", "idle", 3), s.job("ann", "silent", 3)
		payloads, asked := map[string]string{}, timesOut{}
		provider := &jobs.Provider{Client: &http.Client{Transport: asked}, Logger: s.logger(), Probe: func(_ context.Context, id string) (*http.Response, jobs.Probed, error) {
			switch payloads[id] {
			case `"worked"`:
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, jobs.Worked, nil
			case `"idle"`:
				return nil, jobs.NotWorked, nil
			}
			return nil, jobs.Unknown, nil
		}}
		s.work(&jobs.Worker{Name: "w", Handle: func(ctx context.Context, job *jobs.Job) error {
			payloads[job.ID] = string(job.Payload)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.example", nil)
			if err != nil {
				return err
			}
			response, err := provider.Do(job, request)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.is(worked, "committed used=5 cause= crashes=0 errors=0 [committed ]")
		s.is(idle, "committed used=5 cause= crashes=0 errors=1 [failed provider_unavailable] [committed ]")
		s.is(silent, "running used=0 cause= crashes=0 errors=0 [ ]")
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		s.is(silent, "running used=0 cause= crashes=0 errors=0 [ ]")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.is(silent, "expired used=0 cause= crashes=0 errors=0 [expired ]")
		if len(asked) != 3 {
			t.Errorf("the provider was asked under %d keys for 3 jobs", len(asked))
		}
		s.verify()
	})
}
