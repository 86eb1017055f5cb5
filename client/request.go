package client

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-dev/holdfast"
)

// call is one command as the API takes it: in a request of its own, or as an operation of a batch.
type call struct {
	command *holdfast.Command
	method  string
	path    string
	op      string // its name in a batch; empty: no batch takes it
	subject fields // what the path names, where it stands in a batch
	body    fields
	key     string
	decode  func(*call, *reply) (holdfast.Outcome, error)
}

// fields are the members of a JSON object. What is left out is not there.
type fields map[string]any

// set puts a member there unless the value is zero.
func set[T comparable](f fields, name string, value T) {
	var zero T
	if value != zero {
		f[name] = value
	}
}

// give puts a member there unless nothing was given.
func give[T any](f fields, name string, value *T) {
	if value != nil {
		f[name] = *value
	}
}

func (f fields) amounts(name string, values map[string]holdfast.Amount) {
	if values != nil {
		f[name] = values
	}
}

func (f fields) texts(name string, values map[string]string) {
	if values != nil {
		f[name] = values
	}
}

func (f fields) seconds(name string, length time.Duration) { set(f, name, int64(length/time.Second)) }

func (f fields) time(name string, at time.Time) {
	if !at.IsZero() {
		f[name] = at.UTC()
	}
}

// callOf makes the call of a command, or tells what is wrong with the command.
func callOf(command *holdfast.Command) (*call, []holdfast.Problem) {
	c := &call{command: command, method: http.MethodPost, key: command.Key, body: fields{}}
	problems := shape(command)
	wrong := func(field, hint string) { problems = append(problems, holdfast.Problem{Field: field, Hint: hint}) }
	verb := func(name string, id holdfast.ID, decode func(*call, *reply) (holdfast.Outcome, error)) {
		account := command.Target
		if account.IsZero() && command.Project != "" {
			account = command.AccountID()
		}
		if account.IsZero() && command.Account != "" {
			wrong("account", "name the reservation's account by Target, which is Owner.ID of the outcome that made it, or say its Project too")
		}
		public := holdfast.ReservationRef.Encode(account, id)
		c.path, c.op, c.subject, c.decode = "/v1/reservations/"+public+"/"+name, name, fields{"id": public}, decode
	}
	byName := func() {
		if command.Account == "" && !command.Target.IsZero() {
			wrong("account", "name the account: over HTTP it has no other name")
		}
	}
	ofAccount := func(path, op string, decode func(*call, *reply) (holdfast.Outcome, error)) {
		byName()
		c.path, c.op, c.subject, c.decode = accountPath(command.Account, path), op, fields{"account": command.Account}, decode
	}
	f := c.body
	switch op := command.Do.(type) {
	case holdfast.Reserve:
		c.path, c.op, c.decode = "/v1/reservations", "reserve", reservationAnswer
		c.ask(&op)
		if job := op.Job; job != nil {
			asked := fields{}
			set(asked, "max_attempts", job.MaxAttempts)
			if job.Payload != "" {
				asked["payload"] = json.RawMessage(job.Payload)
			}
			f["job"] = asked
		}
	case holdfast.Charge:
		c.path, c.op, c.decode = "/v1/charges", "charge", reservationAnswer
		c.ask(&op.Reserve)
		give(f, "amount", op.Amount)
	case holdfast.Start:
		verb("start", op.ReservationID, startAnswer)
		set(f, "worker", op.Worker)
		f.seconds("lease_seconds", op.Lease)
		if c.key == "" { // the server makes the token, and repeats it under the key
			c.key = "start-" + op.Token
		}
	case holdfast.Heartbeat:
		verb("heartbeat", op.ReservationID, heartbeatAnswer)
		f["lease_token"] = op.LeaseToken
		f.seconds("lease_seconds", op.Lease)
	case holdfast.Commit:
		verb("commit", op.ReservationID, reservationAnswer)
		set(f, "lease_token", op.LeaseToken)
		give(f, "amount", op.Amount)
		give(f, "quantity", op.Quantity)
		f.amounts("usage", op.Usage)
	case holdfast.Release:
		verb("release", op.ReservationID, reservationAnswer)
		set(f, "lease_token", op.LeaseToken)
		set(f, "cause", op.Cause)
		set(f, "retry", op.Retry)
		set(f, "unstarted", op.Unstarted)
	case holdfast.Extend:
		verb("extend", op.ReservationID, reservationAnswer)
		set(f, "lease_token", op.LeaseToken)
		f.seconds("ttl_seconds", op.TTL)
		give(f, "quantity", op.Quantity)
		if len(op.Usage) > 0 {
			f.amounts("usage", op.Usage)
		}
	case holdfast.Cancel:
		verb("cancel", op.ReservationID, reservationAnswer)
	case holdfast.InDoubt:
		verb("in_doubt", op.ReservationID, reservationAnswer)
		f["lease_token"] = op.LeaseToken
	case holdfast.Refund:
		verb("refund", op.ReservationID, reservationAnswer)
		give(f, "amount", op.Amount)
		set(f, "ended_pockets", op.Ended)
		set(f, "reason", op.Reason)
	case holdfast.Force:
		verb("force", op.ReservationID, reservationAnswer)
		f["end"], f["reason"] = op.End, op.Reason
		give(f, "amount", op.Amount)
	case holdfast.PutAccount:
		ofAccount("", "put_account", accountAnswer)
		c.method = http.MethodPut
		give(f, "language", op.Language)
		give(f, "time_zone", op.TimeZone)
		give(f, "blocked", op.Blocked)
		give(f, "notices", op.Notices)
		f.texts("metadata", op.Metadata)
	case holdfast.SetPlan:
		ofAccount("/subscription", "", accountAnswer)
		f["plan"] = op.Plan
	case holdfast.DeleteAccount:
		ofAccount("", "", accountAnswer)
		c.method = http.MethodDelete
	case holdfast.AddGrant:
		ofAccount("/grants", "grant", creditAnswer)
		f["unit"], f["amount"] = op.Unit, op.Amount
		set(f, "source", op.Source)
		give(f, "priority", op.Priority)
		f.time("starts_at", op.StartsAt)
		f.time("ends_at", op.EndsAt)
		if len(op.Features) > 0 {
			f["features"] = op.Features
		}
		set(f, "reason", op.Reason)
	case holdfast.Adjust:
		ofAccount("/adjustments", "adjustment", creditAnswer)
		f["unit"], f["amount"], f["reason"] = op.Unit, op.Amount, op.Reason
	case holdfast.ChangePlan:
		ofAccount("/subscription/change", "change_plan", accountAnswer)
		f["plan"] = op.Plan
		set(f, "when", op.When)
	case holdfast.CancelSubscription:
		ofAccount("/subscription/cancel", "cancel_subscription", accountAnswer)
	case holdfast.ResumeSubscription:
		ofAccount("/subscription/resume", "resume_subscription", accountAnswer)
	case holdfast.Pay:
		byName()
		c.path, c.decode, c.key = "/v1/payments", payAnswer, "" // its ids are the key
		f["provider"], f["payment_id"], f["account"] = op.Provider, op.PaymentID, command.Account
		f["product"], f["amount"], f["currency"] = op.Product, op.Amount, op.Currency
		f.time("period_end", op.PeriodEnd)
		if op.Agreed || op.Stranger || len(op.Refunds) > 0 { // unsaid, it would come to something else
			wrong("operation", "leave out Agreed, Stranger and Refunds: the server finds them out by itself")
		}
	case holdfast.RefundPayment:
		if command.Account != "" || !command.Target.IsZero() { // it would be refunded whoever's it is
			wrong("account", "name no account: over HTTP the payment alone says whose it is")
		}
		c.path, c.decode, c.key = paymentPath(op.Provider, op.PaymentID, "/refunds"), refundPaymentAnswer, ""
		f["refund_id"] = op.Refund.ID
		give(f, "amount", op.Refund.Amount)
		set(f, "dispute", op.Refund.Dispute)
		if op.Refund.Chosen {
			f["policy"] = policyName(op.Refund.Policy)
		}
	case holdfast.LinkAlias:
		wrong("operation", "use Alias: over HTTP the other account is told by its name")
	case holdfast.MergeInto:
		wrong("operation", "use Merge: over HTTP the other account is told by its name")
	default:
		wrong("operation", "there is no call for it: only the server itself does this")
	}
	return c, problems
}

// policyName is the API's word for a policy. The core has none for the one that holds where nothing is said.
func policyName(policy holdfast.RefundPolicy) string {
	if policy == holdfast.RefundRevokeUnused {
		return "revoke_unused"
	}
	return string(policy)
}

// ask fills in what a reserve and a charge ask with.
func (c *call) ask(op *holdfast.Reserve) {
	f := c.body
	f["account"], f["feature"] = c.command.Account, op.Feature
	set(f, "quantity", op.Quantity)
	f.amounts("usage", op.Usage)
	set(f, "surface", op.Surface)
	f.seconds("ttl_seconds", op.TTL)
	f.texts("metadata", c.marked(op))
	set(f, "dry_run", op.DryRun)
}

// commandMark is the name of the pair of metadata that holds the id of the command that made a reservation.
const commandMark = "holdfast.command"

// marked adds the command's id to the metadata, where the caller has given it one. By it the answer to a repeated attempt
// is known as this command's own: the API tells only that the key was used before, and not by whom.
func (c *call) marked(op *holdfast.Reserve) map[string]string {
	if c.command.ID.IsZero() || op.DryRun || len(op.Metadata) >= holdfast.MaxMetadataPairs {
		return op.Metadata
	}
	marked := map[string]string{commandMark: c.command.ID.String()}
	for name, value := range op.Metadata {
		marked[name] = value
	}
	return marked
}

// shape finds what is wrong with the command itself, in the words of the core, and what HTTP cannot carry. It gives a Start
// the token that its key is made of.
func shape(command *holdfast.Command) []holdfast.Problem {
	if start, ok := command.Do.(holdfast.Start); ok && start.Token == "" {
		start.Token = rand.Text()
		command.Do = start
	}
	checked := *command
	if _, ok := command.Do.(holdfast.RefundPayment); ok && command.Account == "" && command.Target.IsZero() {
		checked.Target = holdfast.AccountID{1} // whose the payment is, is the server's to know
	}
	problems := checked.Check()
	add := func(field, hint string) { problems = append(problems, holdfast.Problem{Field: field, Hint: hint}) }
	if key := command.Key; strings.TrimSpace(key) != key || strings.ContainsFunc(key, unicode.IsControl) {
		add("key", "use no control characters, and no spaces at either end: a header does not carry them")
	}
	whole := func(field string, length time.Duration) {
		if length%time.Second != 0 {
			add(field, "use whole seconds")
		}
	}
	switch op := command.Do.(type) {
	case holdfast.Reserve:
		whole("ttl_seconds", op.TTL)
	case holdfast.Charge:
		whole("ttl_seconds", op.TTL)
	case holdfast.Extend:
		whole("ttl_seconds", op.TTL)
	case holdfast.Start:
		whole("lease_seconds", op.Lease)
	case holdfast.Heartbeat:
		whole("lease_seconds", op.Lease)
	}
	return problems
}

// request is the call as a request of its own.
func (c *call) request() *request {
	r := &request{method: c.method, path: c.path, key: c.key, retryRefused: c.command.RetryRefused}
	if c.method != http.MethodDelete {
		r.body = encode(c.body)
	}
	return r
}

// operation is the call as one of a batch.
func (c *call) operation() json.RawMessage {
	item := fields{"op": c.op}
	for _, part := range []fields{c.subject, c.body} {
		for name, value := range part {
			item[name] = value
		}
	}
	set(item, "key", c.key)
	set(item, "retry_refused", c.command.RetryRefused)
	return encode(item)
}

func encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic("client: " + err.Error()) // texts, numbers and times are JSON
	}
	return encoded
}
