package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// ReserveFields are what a reserve and a charge ask with.
type ReserveFields struct {
	Account    string                     `json:"account" doc:"Whose; 1 to 128 bytes without spaces or / ? # %" example:"telegram:42"`
	Feature    string                     `json:"feature" doc:"What for; a feature of the catalog" example:"image.generate"`
	Quantity   *holdfast.Amount           `json:"quantity,omitempty" minimum:"1" doc:"How many; 1 where it is left out"`
	Usage      map[string]holdfast.Amount `json:"usage,omitempty" minimum:"0" doc:"How much of each kind; needed where the price is by usage, else recorded"`
	Surface    string                     `json:"surface,omitempty" doc:"Where the request came from; a surface of the catalog"`
	TTLSeconds *holdfast.Amount           `json:"ttl_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long to hold; the surface's or the feature's where it is left out"`
	Metadata   map[string]string          `json:"metadata,omitempty" doc:"Kept with the reservation"`
	DryRun     bool                       `json:"dry_run,omitempty" doc:"Only say what would happen; needs no key"`
}

func (f *ReserveFields) reserve() holdfast.Reserve {
	return holdfast.Reserve{
		Feature: f.Feature, Quantity: given(f.Quantity), Usage: f.Usage, Surface: f.Surface,
		TTL: seconds(f.TTLSeconds), Metadata: f.Metadata, DryRun: f.DryRun,
	}
}

// reserveBody asks for a reservation: usage is at most how much.
type reserveBody struct {
	ReserveFields
	Job *jobBody `json:"job,omitempty" doc:"The work, to wait in a queue of Holdfast until a worker claims it: payload (any JSON, at most 65536 bytes; null where it is left out) and max_attempts (1 to 10; 3 where it is left out)"`
}

func reserve(body *reserveBody) holdfast.Command {
	op := body.reserve()
	op.Job = body.Job.request()
	return holdfast.Command{Account: body.Account, Do: op}
}

// chargeBody asks to reserve and to commit in one: usage is what was used.
type chargeBody struct {
	ReserveFields
	Amount *holdfast.Amount `json:"amount,omitempty" minimum:"0" doc:"What it came to, in the unit of the price; where it is left out, what quantity or usage cost"`
}

func charge(body *chargeBody) holdfast.Command {
	return holdfast.Command{Account: body.Account, Do: holdfast.Charge{Reserve: body.reserve(), Amount: body.Amount}}
}

// given is 0 for what was left out. A zero that was written is not left out: it becomes a quantity that the core refuses.
func given(quantity *holdfast.Amount) holdfast.Amount {
	if quantity == nil {
		return 0
	}
	if *quantity == 0 {
		return -1
	}
	return *quantity
}

// seconds is 0 for what was left out; a zero that was written is refused by the core like any length that is too short.
// What is longer than every bound stays so, whatever int64 nanoseconds can hold.
func seconds(length *holdfast.Amount) time.Duration {
	const beyond = holdfast.Amount(2 * holdfast.MaxTTL / time.Second)
	switch {
	case length == nil:
		return 0
	case *length <= 0:
		return -time.Second
	}
	return time.Duration(min(*length, beyond)) * time.Second
}

func reserved(c *call, outcome *holdfast.Outcome) answer {
	if outcome.DryRun {
		return c.wouldBe(outcome)
	}
	return answer{status: http.StatusCreated, body: c.reservation(outcome.Reservation, outcome.Balance)}
}

func charged(c *call, outcome *holdfast.Outcome) answer {
	if outcome.DryRun {
		return c.wouldBe(outcome)
	}
	return answer{status: http.StatusCreated, body: c.settled(outcome)}
}

// wouldBe answers a dry run.
func (c *call) wouldBe(outcome *holdfast.Outcome) answer {
	if outcome.Refused() {
		reader := c.reader()
		a := answer{status: http.StatusOK, body: Denied{
			Reason: outcome.Reason, Title: c.api.Texts.Title(outcome.Reason),
			Detail:  c.api.Texts.Detail(reader, c.catalog(), *outcome, c.api.Engine.Now()),
			Numbers: numbers(outcome.Refusal),
		}}
		return a.with("Content-Language", reader.Language)
	}
	return answer{status: http.StatusOK, body: Allowed{Allowed: true, Reservation: c.reservation(outcome.Reservation, outcome.Balance)}}
}

// startBody asks for the right to finish a reservation.
type startBody struct {
	Worker       string           `json:"worker,omitempty" doc:"Who will work, for whoever reads the reservation"`
	LeaseSeconds *holdfast.Amount `json:"lease_seconds,omitempty" minimum:"5" maximum:"3600" doc:"How long without a heartbeat; 60 where it is left out"`
}

func start(id holdfast.ID, body *startBody) holdfast.Operation {
	return holdfast.Start{ReservationID: id, Worker: body.Worker, Lease: seconds(body.LeaseSeconds)}
}

func started(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: Started{
		Reservation: c.reservation(outcome.Reservation, outcome.Balance), LeaseToken: outcome.Lease.Token,
	}}
}

// heartbeatBody says that a worker lives.
type heartbeatBody struct {
	LeaseToken   string           `json:"lease_token" doc:"What start answered"`
	LeaseSeconds *holdfast.Amount `json:"lease_seconds,omitempty" minimum:"5" maximum:"3600" doc:"How long without another; 60 where it is left out"`
}

func heartbeat(id holdfast.ID, body *heartbeatBody) holdfast.Operation {
	return holdfast.Heartbeat{ReservationID: id, LeaseToken: body.LeaseToken, Lease: seconds(body.LeaseSeconds)}
}

func changedReservation(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: c.changed(outcome)}
}

func (c *call) changed(outcome *holdfast.Outcome) ReservationChanged {
	return ReservationChanged{Reservation: c.reservation(outcome.Reservation, outcome.Balance), Changed: outcome.Changed}
}

func beaten(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: c.reservation(outcome.Reservation, outcome.Balance)}
}

// commitBody settles a reservation: by an amount, by a quantity, by usage, or by all that was reserved.
type commitBody struct {
	LeaseToken string                     `json:"lease_token,omitempty" doc:"What start answered; needed once it was started"`
	Amount     *holdfast.Amount           `json:"amount,omitempty" minimum:"0" doc:"What was used, in the reservation's unit"`
	Quantity   *holdfast.Amount           `json:"quantity,omitempty" minimum:"0" doc:"What was used, in uses of the feature; not where the price is by usage"`
	Usage      map[string]holdfast.Amount `json:"usage,omitempty" minimum:"0" doc:"What was used of each kind; a kind left out is 0. Of a fixed price it is only recorded"`
}

func commit(id holdfast.ID, body *commitBody) holdfast.Operation {
	return holdfast.Commit{ReservationID: id, LeaseToken: body.LeaseToken, Amount: body.Amount, Quantity: body.Quantity, Usage: body.Usage}
}

// extendBody asks for more time, a larger upper bound, or both.
type extendBody struct {
	LeaseToken string                     `json:"lease_token,omitempty" doc:"What start answered; needed once it was started"`
	TTLSeconds *holdfast.Amount           `json:"ttl_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long to hold from now"`
	Quantity   *holdfast.Amount           `json:"quantity,omitempty" minimum:"1" doc:"How many in all; not where the price is by usage"`
	Usage      map[string]holdfast.Amount `json:"usage,omitempty" minimum:"0" empty:"say how much will be used in all at most, or leave it out" doc:"How much of each kind in all at most, where the price is by usage"`
}

func extend(id holdfast.ID, body *extendBody) holdfast.Operation {
	return holdfast.Extend{
		ReservationID: id, LeaseToken: body.LeaseToken, TTL: seconds(body.TTLSeconds), Quantity: body.Quantity, Usage: body.Usage,
	}
}

// inDoubtBody marks work of which its worker does not know whether it happened.
type inDoubtBody struct {
	LeaseToken string `json:"lease_token" doc:"What start answered"`
}

func inDoubt(id holdfast.ID, body *inDoubtBody) holdfast.Operation {
	return holdfast.InDoubt{ReservationID: id, LeaseToken: body.LeaseToken}
}

// releaseBody ends a reservation without a charge.
type releaseBody struct {
	LeaseToken string `json:"lease_token,omitempty" doc:"What start answered; needed once it was started"`
	Cause      string `json:"cause,omitempty" doc:"Why, as a word; failed where it is left out" example:"provider_unavailable"`
	Retry      bool   `json:"retry,omitempty" doc:"Give the job back for another attempt, after a delay that doubles from 1 s to 60 s; it is released where it has had its attempts. The cause crashed counts as a crash, any other as an error"`
	Unstarted  bool   `json:"unstarted,omitempty" doc:"Give back a job that was claimed and not begun: it does not count as an attempt"`
}

func release(id holdfast.ID, body *releaseBody) holdfast.Operation {
	return holdfast.Release{ReservationID: id, LeaseToken: body.LeaseToken, Cause: body.Cause, Retry: body.Retry, Unstarted: body.Unstarted}
}

// released answers a release. What was given back has not ended.
func released(c *call, outcome *holdfast.Outcome) answer {
	if outcome.Settlement == nil {
		return changedReservation(c, outcome)
	}
	return settled(c, outcome)
}

// cancelBody has no fields.
type cancelBody struct{}

func cancel(id holdfast.ID, _ *cancelBody) holdfast.Operation {
	return holdfast.Cancel{ReservationID: id}
}

// forceBody ends a stuck reservation without its lease.
type forceBody struct {
	End    holdfast.Ending  `json:"end" enum:"release,commit"`
	Amount *holdfast.Amount `json:"amount,omitempty" minimum:"0" doc:"Of a commit: what to charge, at most what is reserved"`
	Reason string           `json:"reason" doc:"Why; kept in the ledger"`
}

func force(id holdfast.ID, body *forceBody) holdfast.Operation {
	return holdfast.Force{ReservationID: id, End: body.End, Amount: body.Amount, Reason: body.Reason}
}

func settled(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: c.settled(outcome)}
}

func (c *call) settled(outcome *holdfast.Outcome) Settled {
	s := outcome.Settlement
	return Settled{
		ReservationChanged: c.changed(outcome), Returned: s.Returned, Voided: s.Voided, Late: s.Late, MayContinue: s.MayContinue,
	}
}

// cancelled answers a cancel: what nobody had started has ended; a worker is only asked to stop.
func cancelled(c *call, outcome *holdfast.Outcome) answer {
	if outcome.Settlement == nil {
		return answer{status: http.StatusAccepted, body: c.changed(outcome)}
	}
	return settled(c, outcome)
}

// refundBody gives a charge back.
type refundBody struct {
	Amount       *holdfast.Amount      `json:"amount,omitempty" null:"all" minimum:"1" nullable:"true" doc:"How much; all that was not refunded yet where it is null or left out"`
	EndedPockets holdfast.EndedPockets `json:"ended_pockets,omitempty" enum:"void,correction" doc:"What becomes of a refund into a grant that has ended; void where it is left out"`
	Reason       string                `json:"reason,omitempty" doc:"Why; kept in the ledger"`
}

func refund(id holdfast.ID, body *refundBody) holdfast.Operation {
	return holdfast.Refund{ReservationID: id, Amount: body.Amount, Ended: body.EndedPockets, Reason: body.Reason}
}

func refunded(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: Refunded{
		ReservationChanged: c.changed(outcome), Returned: outcome.Settlement.Returned, Voided: outcome.Settlement.Voided,
	}}
}

// byBody is a call whose body names the account.
func byBody[B any](command func(*B) holdfast.Command, encode func(*call, *holdfast.Outcome) answer) action {
	return action{body: new(B), encode: encode, command: func(c *call) (holdfast.Command, *answer) {
		var body B
		if unread := c.from.body(c, &body); unread != nil {
			return holdfast.Command{}, unread
		}
		built := command(&body)
		return built, c.complete(&built)
	}}
}

// onReservation is a call about one reservation, named by its id.
func onReservation[B any](operation func(holdfast.ID, *B) holdfast.Operation, encode func(*call, *holdfast.Outcome) answer) action {
	return action{body: new(B), encode: encode, command: func(c *call) (holdfast.Command, *answer) {
		var body B
		if unread := c.from.body(c, &body); unread != nil {
			return holdfast.Command{}, unread
		}
		account, id, ok := reservationID(c.from.subject(c, "id"))
		if !ok {
			account, id = holdfast.AccountID{1}, holdfast.ID{1} // stands for it while the rest is checked
		}
		command := holdfast.Command{Target: account, Do: operation(id, &body)}
		wrong := c.complete(&command)
		if wrong == nil && !ok {
			a := c.notFound()
			wrong = &a
		}
		return command, wrong
	}}
}

// reservationID reads a public id. One that cannot be decoded names nothing, and neither does one of zeros.
func reservationID(text string) (account holdfast.AccountID, id holdfast.ID, ok bool) {
	account, id, err := holdfast.ReservationRef.Parse(text)
	return account, id, err == nil && !account.IsZero() && !id.IsZero()
}

func getReservation(c *call) answer {
	c.noQuery()
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	account, id, ok := reservationID(c.request.PathValue("id"))
	if !ok {
		return c.notFound()
	}
	c.account = account
	page, err := c.read(store.Query{Kind: store.QueryReservations, Reservation: id})
	switch {
	case err != nil:
		return c.failed(err)
	case len(page.Reservations) == 0:
		return c.notFound()
	}
	r := page.Reservations[0]
	view, err := c.api.Engine.ViewOf(c.context(), c.key.Project, account)
	switch {
	case err != nil:
		return c.failed(err)
	case view == nil:
		return c.notFound()
	}
	c.accountName = view.Account.Name
	var balance *holdfast.Balance
	if !view.Account.MergedInto.IsZero() {
		if balance, err = c.balanceOfNow(r.Price.Unit); err != nil {
			return c.failed(err)
		}
	} else if i := slices.IndexFunc(view.Balances, func(b holdfast.Balance) bool { return b.Unit == r.Price.Unit }); i >= 0 {
		balance = &view.Balances[i]
	}
	return answer{status: http.StatusOK, body: c.reservation(r, balance)}
}

var reservationStates = []holdfast.ReservationState{
	holdfast.Reserved, holdfast.Running, holdfast.Committed, holdfast.Released, holdfast.Expired,
}

func listReservations(c *call) answer {
	read := c.query()
	query := c.page(store.QueryReservations, read)
	c.validName(read[byAccount.name])
	if text, ok := read[byState.name]; ok {
		query.State = holdfast.ReservationState(text)
		if !slices.Contains(reservationStates, query.State) {
			c.wrong(byState.name, "use reserved, running, committed, released or expired")
		}
	}
	if text, ok := read[byKey.name]; ok {
		query.Key = text
		check := holdfast.Command{Account: "any", Key: text, Do: holdfast.PutAccount{}}
		if len(check.Check()) > 0 {
			c.wrong(byKey.name, "use the Idempotency-Key of a reserve, or leave it out")
		}
	}
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	name := read[byAccount.name]
	query.Project, query.Account, query.Cursor = c.key.Project, holdfast.AccountIDOf(c.key.Project, name), read[byCursor.name]
	c.account, c.accountName = query.Account, name
	found, next, err := c.api.Engine.Reservations(c.context(), query)
	if wrong := c.unlisted(len(found), err); wrong != nil {
		return *wrong
	}
	list := ReservationList{Items: []Reservation{}, NextCursor: known(next)}
	for _, r := range found {
		c.account = r.Account
		list.Items = append(list.Items, c.reservation(r.Reservation, nil))
	}
	return answer{status: http.StatusOK, body: list}
}
