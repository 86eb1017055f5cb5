package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// reserveBody asks for a reservation.
type reserveBody struct {
	Account    string                     `json:"account" doc:"Whose; 1 to 128 bytes without spaces or / ? # %" example:"telegram:42"`
	Feature    string                     `json:"feature" doc:"What for; a feature of the catalog" example:"image.generate"`
	Quantity   *holdfast.Amount           `json:"quantity,omitempty" minimum:"1" doc:"How many; 1 where it is left out"`
	Usage      map[string]holdfast.Amount `json:"usage,omitempty" doc:"What the work is expected to use, by kind; recorded"`
	Surface    string                     `json:"surface,omitempty" doc:"Where the request came from; a surface of the catalog"`
	TTLSeconds *holdfast.Amount           `json:"ttl_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long to hold; the surface's or the feature's where it is left out"`
	Metadata   map[string]string          `json:"metadata,omitempty" doc:"Kept with the reservation"`
	DryRun     bool                       `json:"dry_run,omitempty" doc:"Only say what would happen; needs no key"`
}

func reserve(c *call) answer {
	var body reserveBody
	if unread := c.body(&body); unread != nil {
		return *unread
	}
	return c.submit(holdfast.Command{Account: body.Account, Do: holdfast.Reserve{
		Feature: body.Feature, Quantity: given(body.Quantity), Usage: body.Usage, Surface: body.Surface,
		TTL: seconds(body.TTLSeconds), Metadata: body.Metadata, DryRun: body.DryRun,
	}}, reserved)
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
	switch {
	case outcome.Refused(): // of a dry run
		reader := c.reader()
		a := answer{status: http.StatusOK, body: Denied{
			Reason: outcome.Reason, Title: c.api.Texts.Title(outcome.Reason),
			Detail:  c.api.Texts.Detail(reader, c.catalog(), *outcome, c.api.Engine.Now()),
			Numbers: numbers(outcome.Refusal),
		}}
		return a.with("Content-Language", reader.Language)
	case outcome.DryRun:
		return answer{status: http.StatusOK, body: Allowed{Allowed: true, Reservation: c.reservation(outcome.Reservation, outcome.Balance)}}
	}
	return answer{status: http.StatusCreated, body: c.reservation(outcome.Reservation, outcome.Balance)}
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

func beaten(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: Beaten{Reservation: c.reservation(outcome.Reservation, outcome.Balance)}}
}

// commitBody settles a reservation: by an amount, by a quantity, or by all that was reserved. Every price is fixed so far,
// and a caller who reports usage does not mean "charge all".
type commitBody struct {
	LeaseToken string           `json:"lease_token,omitempty" doc:"What start answered; needed once it was started"`
	Amount     *holdfast.Amount `json:"amount,omitempty" minimum:"0" doc:"What was used, in the reservation's unit"`
	Quantity   *holdfast.Amount `json:"quantity,omitempty" minimum:"0" doc:"What was used, in uses of the feature"`
	Usage      any              `json:"usage,omitempty" hidden:"true" refuse:"the price of this reservation is fixed: name an amount or a quantity instead"`
}

func commit(id holdfast.ID, body *commitBody) holdfast.Operation {
	return holdfast.Commit{ReservationID: id, LeaseToken: body.LeaseToken, Amount: body.Amount, Quantity: body.Quantity}
}

// releaseBody ends a reservation without a charge.
type releaseBody struct {
	LeaseToken string `json:"lease_token,omitempty" doc:"What start answered; needed once it was started"`
	Cause      string `json:"cause,omitempty" doc:"Why, as a word; failed where it is left out" example:"provider_unavailable"`
}

func release(id holdfast.ID, body *releaseBody) holdfast.Operation {
	return holdfast.Release{ReservationID: id, LeaseToken: body.LeaseToken, Cause: body.Cause}
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
	s := outcome.Settlement
	return answer{status: http.StatusOK, body: Settled{
		Reservation: c.reservation(outcome.Reservation, outcome.Balance), Changed: outcome.Changed,
		Returned: s.Returned, Voided: s.Voided, Late: s.Late, MayContinue: s.MayContinue,
	}}
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
		Reservation: c.reservation(outcome.Reservation, outcome.Balance), Changed: outcome.Changed,
		Returned: outcome.Settlement.Returned, Voided: outcome.Settlement.Voided,
	}}
}

// onReservation is a call about one reservation, named by its id in the path.
func onReservation[B any](operation func(holdfast.ID, *B) holdfast.Operation, encode func(*call, *holdfast.Outcome) answer) action {
	return action{body: new(B), run: func(c *call) answer {
		var body B
		if unread := c.body(&body); unread != nil {
			return *unread
		}
		account, id, ok := c.reservationID()
		if !ok {
			account, id = holdfast.AccountID{1}, holdfast.ID{1} // stands for it while the rest is checked
		}
		command := holdfast.Command{Target: account, Do: operation(id, &body)}
		if wrong := c.prepare(&command); wrong != nil {
			return *wrong
		}
		if !ok {
			return c.notFound()
		}
		return c.send(command, encode)
	}}
}

// reservationID reads the id in the path. One that cannot be decoded names nothing, and neither does one of zeros.
func (c *call) reservationID() (account holdfast.AccountID, id holdfast.ID, ok bool) {
	account, id, err := holdfast.ReservationRef.Parse(c.request.PathValue("id"))
	return account, id, err == nil && !account.IsZero() && !id.IsZero()
}

func getReservation(c *call) answer {
	c.noQuery()
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	account, id, ok := c.reservationID()
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
	owner, err := c.read(store.Query{Kind: store.QueryState})
	switch {
	case err != nil:
		return c.failed(err)
	case owner.State == nil:
		return c.notFound()
	}
	c.accountName = owner.State.Account.Name
	view := holdfast.View(c.catalog(), owner.State, c.api.Engine.Now())
	var balance *holdfast.Balance
	if i := slices.IndexFunc(view.Balances, func(b holdfast.Balance) bool { return b.Unit == r.Price.Unit }); i >= 0 {
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
	return c.list(read[byAccount.name], query, read, func(page store.Page, next *string) any {
		list := ReservationList{Items: []Reservation{}, NextCursor: next}
		for _, r := range page.Reservations {
			list.Items = append(list.Items, c.reservation(r, nil))
		}
		return list
	})
}
