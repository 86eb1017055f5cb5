package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// Causes of releases that the kit gives.
const (
	CauseUnreachable   = "unreachable"   // the person has blocked the bot: nobody would see the result
	CauseUndeliverable = "undeliverable" // Telegram does not take the result
	CauseUnknownWork   = "unknown_work"  // the job is none that this bot does
)

// queuesEvery is how often is looked whether a new catalog has other queues.
const queuesEvery = 30 * time.Second

const defaultLease = 20 * time.Second

// Run does the work of bots, which may share projects, tells what the bots were not running to tell, and returns when ctx has
// ended and all that was begun is told. Updates and events come by Take and Sink.
func Run(ctx context.Context, kits ...*Kit) error {
	var running sync.WaitGroup
	for _, k := range kits {
		running.Go(func() { k.care(ctx) })
	}
	crews := map[string]*crew{}
	for _, k := range kits {
		if crews[k.options.Project] == nil {
			crews[k.options.Project] = &crew{working: map[string]bool{}}
		}
		c := crews[k.options.Project]
		c.kits = append(c.kits, k)
	}
	for _, c := range crews {
		running.Go(func() { c.run(ctx) })
	}
	running.Wait()
	for _, k := range kits {
		k.leaving.Wait()
	}
	return nil
}

// Run is Run for one bot.
func (k *Kit) Run(ctx context.Context) error { return Run(ctx, k) }

// crew does the work of the bots of one project: a job of any of them may be in any queue of its features.
type crew struct {
	kits    []*Kit
	working map[string]bool // queues that have a worker
}

func (c *crew) run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	first := c.kits[0]
	for ctx.Err() == nil {
		for queue, concurrency := range c.queues() {
			if c.working[queue] {
				continue
			}
			c.working[queue] = true
			w := &jobs.Worker{
				Source: source{first.options.Engine, c}, Project: first.options.Project, Queue: queue, Name: "telegram:" + first.options.Bot,
				Handle: c.handle, Concurrency: concurrency, Lease: first.options.Lease, Logger: first.log(),
			}
			workers.Go(func() { _ = w.Run(ctx) }) // it lacks nothing
		}
		select {
		case <-ctx.Done():
		case <-time.After(queuesEvery):
		}
	}
}

// source is the engine as workers have it: a job that is given back waits again, and its status message says so.
type source struct {
	Engine
	crew *crew
}

// Submit is the engine's.
func (s source) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	outcome, err := s.Engine.Submit(ctx, command)
	if _, released := command.Do.(holdfast.Release); err == nil && released && outcome.Reservation != nil && outcome.Reservation.State == holdfast.Reserved {
		s.crew.backInQueue(ctx, holdfast.ReservationRef.Encode(outcome.Owner.ID, outcome.Reservation.ID), outcome.Reservation.Metadata[metaBot])
	}
	return outcome, err
}

func (c *crew) backInQueue(ctx context.Context, ref, bot string) {
	k := c.kit(bot)
	if k == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if err := k.show(ctx, ref, wish{}); err != nil {
		k.log().Info("a status message could not be changed", "bot", k.options.Bot, "reservation", ref, "error", err)
	}
}

// kit is the one of a bot; nil: it is none of these.
func (c *crew) kit(bot string) *Kit {
	for _, k := range c.kits {
		if k.options.Bot == bot {
			return k
		}
	}
	return nil
}

// queues are those of all registered features and of all plans' tiers, with how many jobs may be done at once.
func (c *crew) queues() map[string]int {
	queues := map[string]int{}
	for _, k := range c.kits {
		catalog := k.catalog()
		for _, f := range k.features {
			feature, ok := catalog.Feature(f.Name)
			if !ok {
				continue
			}
			for i := range catalog.Plans {
				name := feature.QueueOn(&catalog.Plans[i])
				queues[name] = max(queues[name], f.Concurrency, 1)
			}
		}
	}
	return queues
}

// handle gives a job to the bot whose it is.
func (c *crew) handle(ctx context.Context, job *jobs.Job) error {
	var p Prompt
	if err := json.Unmarshal(job.Payload, &p); err != nil || p.Bot == "" {
		return jobs.Fail(CauseUnknownWork, errors.New("the job was not made by a bot, and is in a queue of bots"))
	}
	if k := c.kit(p.Bot); k != nil {
		return k.work(ctx, job, p)
	}
	return jobs.Retry(CauseUnknownWork, fmt.Errorf("the job is of the bot %q, which does not run here", p.Bot))
}

// work has a job done and its result delivered. Only then it returns nil, which charges for it: a result that nobody got is
// not charged, and one that was delivered already, before a crash, is not delivered again.
func (k *Kit) work(ctx context.Context, job *jobs.Job, p Prompt) (err error) {
	ref := job.ID
	f := k.feature(job.Reservation.Feature)
	if f == nil {
		return jobs.Fail(CauseUnknownWork, fmt.Errorf("no feature %q is registered", job.Reservation.Feature))
	}
	delivered, known, err := note[figure](ctx, k, donePrefix+ref)
	if err != nil {
		return err
	}
	if known {
		delivered.tell(job)
		return nil
	}
	result, came, err := k.resultOf(ctx, job, p, f)
	if err != nil {
		return err
	}
	if err := k.deliver(ctx, ref, p, result); err != nil {
		k.keepResult(ctx, ref, result, came, err)
		return k.undelivered(ctx, p, err)
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	if err := k.keep(settling, donePrefix+ref, came); err != nil {
		k.log().Warn("that a result was delivered could not be noted; a crash now would deliver it twice", "bot", k.options.Bot, "reservation", ref, "error", err)
	}
	// Beside the charge, which it must not hold up: whoever has the result may ask for the next one.
	k.leaving.Go(func() {
		defer cancel()
		if err := k.vanish(settling, ref); err != nil { // its end will take it away
			k.log().Info("a status message could not be taken away yet", "bot", k.options.Bot, "reservation", ref, "error", err)
		}
	})
	return nil
}

// kept is a result that could not be delivered yet: it is not worked for twice.
type kept struct {
	Result Result `json:"result"`
	Figure figure `json:"figure"`
}

const resultPrefix = "result:"

// mostKept bounds a result that is kept until it can be delivered, in bytes of its JSON.
const mostKept = 256 << 10

// resultOf has the work done, unless an earlier attempt has done it.
func (k *Kit) resultOf(ctx context.Context, job *jobs.Job, p Prompt, f *Feature) (result Result, came figure, err error) {
	before, known, err := note[kept](ctx, k, resultPrefix+job.ID)
	if err != nil {
		return Result{}, figure{}, err
	}
	if known {
		before.Figure.tell(job)
		return before.Result, before.Figure, nil
	}
	showing := k.follow(ctx, job.ID, f, p)
	defer showing.done() // also where the author's code panics, which the worker takes for a crash
	w := &Work{Job: job, Prompt: p, Reader: k.reader(p.Language, p.TimeZone), Feature: f.Name, progress: showing.progress}
	w.draft = func(ctx context.Context) (int64, error) {
		draft := draftOf(job.ID)
		return draft, k.keep(ctx, draftKey(p.Chat, draft), job.ID)
	}
	result, err = f.Do(ctx, w)
	if err == nil && result.empty() {
		err = jobs.Fail(CauseUndeliverable, errors.New("the work came to nothing that could be sent"))
	}
	return result, w.figure, err
}

// deliver sends a result as the reply to what the person has asked. Where Telegram asks for a pause it waits, for as long as
// the job may take; heartbeats go on meanwhile.
func (k *Kit) deliver(ctx context.Context, ref string, p Prompt, result Result) error {
	if errors.Is(context.Cause(ctx), engine.ErrCancelRequested) { // it had come so far when it was asked to stop
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverStopped)
		defer cancel()
		ctx = stopping
	}
	err := k.send(ctx, p, result)
	if errors.Is(err, botapi.ErrRejected) {
		plain := result
		switch {
		case result.PhotoURL != "" && len(result.Photo) == 0: // Telegram could not fetch it; the person perhaps can
			plain.PhotoURL, plain.HTML = "", false
			plain.Text = joinLines(result.Text, result.PhotoURL)
		case result.HTML: // it is not HTML as Telegram reads it
			plain.HTML = false
		default:
			return err
		}
		k.log().Warn("telegram did not take a result as it was; it is sent in a plainer form", "bot", k.options.Bot, "reservation", ref, "error", err)
		err = k.send(ctx, p, plain)
	}
	return err
}

// deliverStopped is how long the delivery of what was done before a person asked to stop may take: a worker gives its handler
// little more.
const deliverStopped = 8 * time.Second

func (k *Kit) send(ctx context.Context, p Prompt, result Result) error {
	var err error
	if len(result.Photo) > 0 || result.PhotoURL != "" {
		_, err = k.options.API.SendPhoto(ctx, botapi.Photo{
			Chat: p.Chat, Thread: p.Thread, ReplyTo: p.Message, Caption: result.Text, HTML: result.HTML,
			URL: result.PhotoURL, Data: result.Photo, Keyboard: result.Keyboard, AtLeastOnce: true,
		})
		return err
	}
	_, err = k.options.API.Send(ctx, botapi.Message{
		Chat: p.Chat, Thread: p.Thread, ReplyTo: p.Message, Text: result.Text, HTML: result.HTML, Keyboard: result.Keyboard, AtLeastOnce: true,
	})
	return err
}

func joinLines(lines ...string) string {
	text := ""
	for _, line := range lines {
		if line != "" && text != "" {
			text += "\n"
		}
		text += line
	}
	return text
}

// keepResult keeps what another attempt may be able to deliver.
func (k *Kit) keepResult(ctx context.Context, ref string, result Result, came figure, why error) {
	if errors.Is(why, botapi.ErrBlocked) || errors.Is(why, botapi.ErrRejected) {
		return
	}
	written, err := json.Marshal(kept{result, came})
	if err != nil || len(written) > mostKept {
		return
	}
	keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	defer cancel()
	if err := k.keep(keeping, resultPrefix+ref, kept{result, came}); err != nil {
		k.log().Warn("a result that could not be delivered yet could not be kept; the work is done again", "bot", k.options.Bot, "reservation", ref, "error", err)
	}
}

// undelivered says what becomes of work whose result did not reach the person.
func (k *Kit) undelivered(ctx context.Context, p Prompt, err error) error {
	switch {
	case errors.Is(err, botapi.ErrBlocked):
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
		defer cancel()
		if p.Private {
			found, problem := k.asker(leaving, p)
			if problem == nil {
				problem = k.gone(leaving, found.owner, true)
			}
			if problem != nil {
				k.log().Warn("that a person has blocked the bot could not be noted", "bot", k.options.Bot, "error", problem)
			}
		}
		return jobs.Fail(CauseUnreachable, err)
	case errors.Is(err, botapi.ErrRejected):
		return jobs.Fail(CauseUndeliverable, err)
	}
	return jobs.Retry("delivery_failed", err)
}
