package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// story is what the demo tells: everything is done over HTTP, and everything that is claimed is read from the database.
type story struct {
	out, notes io.Writer
	api        *apiClient
	database   database // opened for reading, beside the server
	catalogs   *catalogs

	worker *workerProcess // waits for its job from the beginning
	won    *apiAnswer     // the press that got the credit
	wonKey string

	running *apiAnswer // the picture that is painted while Clara pays

	queued   *apiAnswer // Dora's job
	receiver *receiver  // of the webhook about it; nil: there is none yet

	person  string               // whom the chapter is about
	entries int64                // ledger entries that were shown already
	ended   map[holdfast.ID]bool // reservations that were shown after their end

	mu        sync.Mutex
	delivered map[string]int // how often each press reached the server
}

const (
	ann         = "telegram:42"
	demoFeature = "text.improve"
	demoChat    = "chat.completion"
	// demoTTLSeconds is how long a press is held without a worker. Once started, it is held as long again, or as long as
	// the lease; so both are the same, and the story waits for one of them.
	demoTTLSeconds = demoLeaseSeconds
	// demoPatience is how long the story waits for the sweeper beyond that before it calls it a failure.
	demoPatience = 30 * time.Second
)

// chapter is one step of the story.
type chapter struct {
	prose string
	tell  func(context.Context) error
}

func (s *story) chapters() []chapter {
	return []chapter{
		{"Ann (" + ann + ", reads Russian) is on the free plan: 3 credits in 24 hours. She uses two; one is left.", s.oneLeft},
		{"Ann is impatient and presses twice: two requests at the same moment, each with a key of its own.", s.twoPresses},
		{"The press that got it is delivered again, with its key. The recorded answer is repeated; nothing more is held.", s.redelivery},
		{"A worker, in a process of its own, begins the job, and is killed. Nobody will ever tell how the job ended.", s.workerDies},
		{"Its lease passes, and then the reservation's time. The sweeper gives the credit back, untouched.", s.sweeperFrees},
		{"Ann presses once more. Another worker finishes, tells so twice, and then a release comes too late.", s.finish},
		{"Ann is on pro now: 300 credits a month. A chat is priced by usage: 1 credit per 1,000 tokens in, 4 per 1,000 out. Nobody knows\n" +
			"   beforehand how long the answer will be, so the most is held, what was used is charged, and the difference comes back.", s.chat},
		{"Clara (" + clara + ", on the free plan) buys 100 credits with Telegram Stars. The payment is told twice, and granted once.\n" +
			"   A picture costs 5 credits; what would burn is held before what was bought.", s.purchase},
		{"While it is painted she buys pro. What is held stays held, and the picture ends at its old price; the next one costs an image of pro.", s.upgrade},
		{"Her 100 Stars for the credits are refunded. What is unused is taken back, what was used stays paid, and pro stays.", s.refund},
		{"Dora's (" + dora + ") press is reserved together with its work, which waits in a queue of Holdfast. A worker claims it, and is killed.\n" +
			"   The server of her bot has asked to be told of charges.", s.jobLost},
		{"The lease passes, and the job is given away: the same reservation, at the same price. The second worker finishes.", s.jobGivenAway},
		{"The charge is told to the bot's server, which loses its answer. So the same event comes again, and is dropped by its id.", s.toldTwice},
		{"Verify reads the whole ledger and adds it up again.", s.verify},
	}
}

// mainChapters are those of the main job: who presses twice is charged once, whatever becomes of the worker.
const mainChapters = 6

// tell tells the chapters. It ends at the first one that did not come out as it must.
func (s *story) tell(ctx context.Context) error {
	if err := s.tellChapters(ctx, s.chapters()); err != nil {
		return err
	}
	return s.sum(ctx)
}

// tellMainJob tells the first of them.
func (s *story) tellMainJob(ctx context.Context) error {
	return s.tellChapters(ctx, s.chapters()[:mainChapters])
}

func (s *story) tellChapters(ctx context.Context, chapters []chapter) (err error) {
	s.print("A real server at %s, on a new SQLite file, called over HTTP.\n", s.api.url)
	s.turnTo(ann)
	s.worker, err = newWorker(ctx, s.api, "w1", s.notes)
	if err != nil {
		return err
	}
	defer func() { _ = s.worker.kill() }() // where the story does not
	defer func() { s.receiver.close() }()
	for i, c := range chapters {
		s.print("\n%d. %s\n\n", i+1, c.prose)
		if err := c.tell(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("the demo was interrupted at step %d", i+1)
			}
			return fmt.Errorf("the demo failed at step %d: %w", i+1, err)
		}
	}
	return nil
}

// oneLeft brings Ann to her last credit.
func (s *story) oneLeft(ctx context.Context) error {
	known, err := s.call(ctx, apiCall{method: http.MethodPut, path: "/v1/accounts/" + ann, body: map[string]any{"language": "ru"}})
	if err != nil {
		return err
	}
	s.called(known, "PUT", "account", "", "language %s", known.Language)
	if err := same("status", known.status, http.StatusOK); err != nil {
		return err
	}
	for _, key := range []string{"use-1", "use-2"} {
		reserved, err := s.press(ctx, key, "")
		if err != nil {
			return err
		}
		if err := same("status of "+key, reserved.status, http.StatusCreated); err != nil {
			return err
		}
		committed, err := s.verb(ctx, reserved.ID, "commit", nil)
		if err != nil {
			return err
		}
		s.called(reserved, "POST", "reservations", key, "reserved %d %s", reserved.Reserved, reserved.Unit)
		s.called(committed, "POST", "…/commit", "", "%s, used %d", committed.State, committed.Used)
		if err := errors.Join(same("status of the commit", committed.status, http.StatusOK), same("used", committed.Used, 1)); err != nil {
			return err
		}
	}
	return s.believes(ctx, belief{available: 1, reserved: 0, active: 0, used: 2})
}

// twoPresses is the race for the last credit: one press gets it, the other is told why not, in the person's language.
func (s *story) twoPresses(ctx context.Context) error {
	keys := []string{"press-1", "press-2"}
	answers := make([]*apiAnswer, len(keys))
	failed := make([]error, len(keys))
	var both sync.WaitGroup
	gate := make(chan struct{})
	for i, key := range keys {
		both.Go(func() {
			<-gate
			answers[i], failed[i] = s.press(ctx, key, "")
		})
	}
	close(gate)
	both.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	winner, loser := 0, 1
	if answers[1].status == http.StatusCreated {
		winner, loser = 1, 0
	}
	s.won, s.wonKey = answers[winner], keys[winner]
	for i, key := range keys {
		s.called(answers[i], "POST", "reservations", key, "%s", describeAnswer(answers[i]))
	}
	refused := answers[loser]
	if err := errors.Join(
		same("status of one press", s.won.status, http.StatusCreated),
		same("status of the other", refused.status, http.StatusPaymentRequired),
		same("its reason", refused.Reason, string(holdfast.HeldByActive)),
		same("its numbers", describeAnswer(refused), "held_by_active: needed 1, available 0, held 1, active 1 of 1"),
	); err != nil {
		return err
	}
	// The refusal is recorded under its key, and so can be told again: its numbers stay, its text follows the reader.
	english, err := s.press(ctx, keys[loser], "en")
	if err != nil {
		return err
	}
	s.print("\n    in Russian   %s\n    in English   %s\n", refused.Detail, english.Detail)
	if err := errors.Join(
		same("the refusal told again is a replay", english.replayed, true),
		same("its numbers", describeAnswer(english), describeAnswer(refused)),
		same("the two texts are one", english.Detail == refused.Detail, false),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 0, reserved: 1, active: 1, used: 2})
}

// redelivery repeats the press that was answered already.
func (s *story) redelivery(ctx context.Context) error {
	again, err := s.press(ctx, s.wonKey, "")
	if err != nil {
		return err
	}
	s.called(again, "POST", "reservations", s.wonKey, "%s, replayed: the same reservation", describeAnswer(again))
	if err := errors.Join(
		same("status", again.status, http.StatusCreated),
		same("replayed", again.replayed, true),
		same("reservation", again.ID, s.won.ID),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 0, reserved: 1, active: 1, used: 2})
}

// workerDies lets the worker begin, and kills its process.
func (s *story) workerDies(ctx context.Context) error {
	report, err := s.worker.ask("start " + s.won.ID)
	if err != nil {
		return err
	}
	s.print("    worker w1 (process %d)   POST …/start   %d %s, lease of %d s\n",
		s.worker.command.Process.Pid, report.Status, report.State, demoLeaseSeconds)
	if err := same("what the worker was answered", report, workerReport{Status: http.StatusOK, State: string(holdfast.Running)}); err != nil {
		return err
	}
	if err := s.worker.kill(); err != nil {
		return err
	}
	s.print("    and then: %s\n", s.worker.command.ProcessState)
	return s.believes(ctx, belief{available: 0, reserved: 1, active: 1, used: 2})
}

// sweeperFrees waits until nobody can have come back.
func (s *story) sweeperFrees(ctx context.Context) error {
	began := time.Now()
	s.print("    waiting, about %d s …\n", demoTTLSeconds)
	ended, err := s.awaitEnd(ctx, s.won.ID)
	if err != nil {
		return err
	}
	s.print("    %.1f s later: %s %s, used %d\n", time.Since(began).Seconds(), s.wonKey, ended.State, ended.Used)
	if err := errors.Join(
		same("state", ended.State, holdfast.Expired),
		same("it ended before its time", ended.EndedAt.Before(ended.ExpiresAt), false),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 1, reserved: 0, active: 0, used: 2})
}

// finish is how it should be: reserved, started, committed. What comes after that changes nothing.
func (s *story) finish(ctx context.Context) error {
	const key = "press-3"
	reserved, err := s.press(ctx, key, "")
	if err != nil {
		return err
	}
	s.called(reserved, "POST", "reservations", key, "%s", describeAnswer(reserved))
	started, err := s.api.start(ctx, reserved.ID, "w2")
	if err != nil {
		return err
	}
	s.called(started, "POST", "…/start", "", "%s by w2", started.State)
	if err := errors.Join(same("status of the press", reserved.status, http.StatusCreated), same("status of the start", started.status, http.StatusOK)); err != nil {
		return err
	}
	lease := map[string]any{"lease_token": started.LeaseToken}
	for telling := range 2 {
		committed, err := s.verb(ctx, reserved.ID, "commit", lease)
		if err != nil {
			return err
		}
		changed := committed.Changed != nil && *committed.Changed
		s.called(committed, "POST", "…/commit", "", "%s, used %d, changed: %t", committed.State, committed.Used, changed)
		if err := errors.Join(
			same("status of a commit", committed.status, http.StatusOK),
			same("used", committed.Used, 1),
			same("changed", changed, telling == 0),
		); err != nil {
			return err
		}
	}
	late, err := s.verb(ctx, reserved.ID, "release", lease)
	if err != nil {
		return err
	}
	if late.Reservation == nil {
		return fmt.Errorf("a release that comes too late: expected to be shown the reservation, got %d %s", late.status, late.Reason)
	}
	s.called(late, "POST", "…/release", "", "%s: it stays %s, used %d", late.Reason, late.Reservation.State, late.Reservation.Used)
	if err := errors.Join(
		same("status of the release", late.status, http.StatusConflict),
		same("its reason", late.Reason, string(holdfast.AlreadyEnded)),
		same("the reservation stays", late.Reservation.State, string(holdfast.Committed)),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 0, reserved: 0, active: 0, used: 3})
}

// chat is work whose price is known afterwards only: asked for too much, estimated, held, and settled by what was used.
func (s *story) chat(ctx context.Context) error {
	plan, err := s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/accounts/" + ann + "/subscription", body: map[string]any{"plan": "pro"}})
	if err != nil {
		return err
	}
	s.called(plan, "POST", "subscription", "", "plan %s", plan.Plan)
	if err := errors.Join(same("status", plan.status, http.StatusOK), same("plan", plan.Plan, "pro")); err != nil {
		return err
	}
	usage := func(in, out int) map[string]any { return map[string]any{"input_token": in, "output_token": out} }
	ask := func(key, language string, usage map[string]any) (*apiAnswer, error) {
		body := map[string]any{"account": ann, "feature": demoChat, "usage": usage}
		if key == "" {
			body["dry_run"] = true
		}
		return s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/reservations", key: key, language: language, body: body})
	}

	asked, err := ask("", "en", usage(1200, 100_000))
	if err != nil {
		return err
	}
	s.called(asked, "POST", "reservations", "", "only asked, for 1,200 in and 100,000 out: %s", asked.Reason)
	s.print("\n    the estimate %s\n    in English   %s\n\n", describeEstimate(asked), asked.Detail)
	if err := errors.Join(
		same("status", asked.status, http.StatusOK),
		same("its reason", asked.Reason, string(holdfast.Insufficient)),
		same("it is an estimate", asked.Estimated, true),
		same("the estimate", describeEstimate(asked), "402 credits at most, 300 are available; 897 in and 74,775 out could be paid"),
	); err != nil {
		return err
	}
	const key = "chat-1"
	held, err := ask(key, "", usage(1200, 4096))
	if err != nil {
		return err
	}
	s.called(held, "POST", "reservations", key, "1,200 in and at most 4,096 out: %s", describeAnswer(held))
	if err := errors.Join(same("status of "+key, held.status, http.StatusCreated), same("held", held.Reserved, 18)); err != nil {
		return err
	}
	if err := s.believes(ctx, belief{available: 282, reserved: 18, active: 1, used: 0}); err != nil {
		return err
	}
	committed, err := s.verb(ctx, held.ID, "commit", map[string]any{"usage": usage(1200, 1500)})
	if err != nil {
		return err
	}
	s.print("\n")
	s.called(committed, "POST", "…/commit", "", "1,200 in and 1,500 out were used: %s, used %d, returned %d", committed.State, committed.Used, committed.Returned)
	if err := errors.Join(
		same("status of the commit", committed.status, http.StatusOK),
		same("used", committed.Used, 8), // 1.2 and 6, rounded up once
		same("returned", committed.Returned, 10),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 292, reserved: 0, active: 0, used: 8})
}

func (s *story) verify(ctx context.Context) error {
	result, err := verify(ctx, s.database)
	if err != nil {
		return err
	}
	s.print("    %s\n", result)
	return same("differences", strings.Join(result.differences, "; "), "")
}

// sum counts, in the database, what came of all presses.
func (s *story) sum(ctx context.Context) error {
	s.turnTo(ann)
	all, err := s.reservations(ctx)
	if err != nil {
		return err
	}
	presses, deliveries, charges := 0, 0, 0
	for key, times := range s.delivered {
		if isPress(key) {
			presses++
			deliveries += times
		}
	}
	for _, r := range all {
		if isPress(r.Key) && r.Charged() > 0 {
			charges++
		}
	}
	if err := same("presses that were charged", charges, 1); err != nil {
		return err
	}
	s.print("\nPressed %d times, delivered %d times, one worker lost: charged once.\n", presses, deliveries)
	s.print("One job, two workers, one of them killed: charged once, told twice, counted once.\n")
	return nil
}

func isPress(key string) bool { return strings.HasPrefix(key, "press-") }

// press reserves what one press of the button costs.
func (s *story) press(ctx context.Context, key, language string) (*apiAnswer, error) {
	answer, err := s.call(ctx, apiCall{
		method: http.MethodPost, path: "/v1/reservations", key: key, language: language,
		body: map[string]any{"account": ann, "feature": demoFeature, "ttl_seconds": demoTTLSeconds},
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivered == nil {
		s.delivered = map[string]int{}
	}
	s.delivered[key]++
	return answer, nil
}

// verb does something with a reservation.
func (s *story) verb(ctx context.Context, reservation, verb string, body map[string]any) (*apiAnswer, error) {
	return s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/reservations/" + reservation + "/" + verb, body: body})
}

func (s *story) call(ctx context.Context, call apiCall) (*apiAnswer, error) {
	return s.api.do(ctx, call)
}

func describeAnswer(a *apiAnswer) string {
	if a.Reason == "" {
		return fmt.Sprintf("%s %d %s", a.State, a.Reserved, a.Unit)
	}
	return fmt.Sprintf("%s: needed %d, available %d, held %d, active %d of %d", a.Reason, a.Needed, a.Available, a.Held, a.Active, a.MaxActive)
}

// describeEstimate says what work that is priced by usage may cost, and how much of it could be paid.
func describeEstimate(a *apiAnswer) string {
	return fmt.Sprintf("%d %ss at most, %d are available; %s in and %s out could be paid", a.Needed, a.Unit, a.Available,
		thousands(a.AffordableUsage["input_token"]), thousands(a.AffordableUsage["output_token"]))
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// called prints a line about a call: what was asked, under which key, and what was answered.
func (s *story) called(a *apiAnswer, method, what, key, format string, values ...any) {
	if key != "" {
		key = "key " + key
	}
	s.print("    %-4s  %-12s  %-11s  %d  %s\n", method, what, key, a.status, fmt.Sprintf(format, values...))
}

func (s *story) print(format string, values ...any) { _, _ = fmt.Fprintf(s.out, format, values...) }
